"""What the engine decides by itself: sizes, admission order, and what it does when overloaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from engine.errors import UserError
from engine.orders import OrderName
from engine.overload import OverloadRule
from engine.protocol import Limits

DEFAULT_LIMITS = Limits()
DEFAULT_OVERLOAD = OverloadRule()


@dataclass(frozen=True)
class EngineSettings:
    """What the engine decides by itself."""

    limits: Limits = DEFAULT_LIMITS
    capacity_tokens: int = 1024
    """Cache rows a slot: prompt, output and the candidate tree together."""
    prefill_tokens: int = 64
    """Prompt tokens processed before each decoding step, until a plan says otherwise."""
    horizon_s: float = float("inf")
    """The episode is cut when the clock passes this."""
    order: OrderName = "fcfs"
    """Who of the waiting requests is next: fcfs, priority (the class's) or edf."""
    overload: OverloadRule = DEFAULT_OVERLOAD
    """When more is demanded than the machine can do, and what follows."""

    def __post_init__(self) -> None:
        if self.prefill_tokens < 1:
            raise UserError(
                f"prefill_tokens is {self.prefill_tokens}; expected at least 1, or no prompt would "
                "ever be read"
            )
        if self.order not in get_args(OrderName):
            raise UserError(
                f"order is {self.order!r}; expected one of {', '.join(get_args(OrderName))}"
            )

    @property
    def context_tokens(self) -> int:
        """Longest prompt and output together; behind them the tree needs rows of its own."""
        return self.capacity_tokens - self.limits.max_nodes - 1
