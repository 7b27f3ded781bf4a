"""How one request wants its tokens chosen. What is done with it stands in `engine.sampling`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from engine.errors import UserError

MARGIN_GUARD = 10  # ours; other systems publish 3 (ratio 0.5) and 10 (ratio 0.7)


@dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters of a request; the default is greedy decoding.

    Order: repetition penalty, temperature, top-k, top-p, min-p. Raises UserError for a value out
    of range.
    """

    temperature: float = 0.0
    """0 is greedy: the filters then change nothing, the penalty still does."""
    top_k: int = 0
    """Only the k likeliest tokens; 0 is all."""
    top_p: float = 1.0
    """Only the likeliest tokens that together reach this probability; 1 is all."""
    min_p: float = 0.0
    """Only tokens at least this fraction as likely as the likeliest; 0 is all."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens seen before, the prompt's too."""
    seed: int | None = None
    """Key of the noise; None takes the request's id. The same seed gives the same text."""
    logprobs: bool = False
    """Whether the log probability of every emitted token, before penalty and filters, is kept."""
    margin_guard: int = MARGIN_GUARD
    """A margin lets no token through that is not among the target's likeliest K."""

    def __post_init__(self) -> None:
        checks = (
            ("temperature", 0.0 <= self.temperature < float("inf"), "a number from 0 on"),
            ("top_k", _whole(self.top_k, 2**31), "0 (all tokens) or a positive count"),
            ("top_p", 0.0 < self.top_p <= 1.0, "a number above 0 and up to 1"),
            ("min_p", 0.0 <= self.min_p <= 1.0, "a number from 0 to 1"),
            (
                "repetition_penalty",
                0.0 < self.repetition_penalty < float("inf"),
                "a number above 0, 1 for none",
            ),
            ("seed", self.seed is None or _whole(self.seed, 2**63), "an integer of [0, 2^63)"),
            ("logprobs", isinstance(self.logprobs, bool), "true or false"),
            (
                "margin_guard",
                _whole(self.margin_guard, 2**31) and self.margin_guard > 0,
                "a positive count",
            ),
        )
        for name, holds, wanted in checks:
            if not holds:
                raise UserError(f"{name} is {getattr(self, name)!r}; expected {wanted}")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> SamplingParams:
        """Parameters by name, as a request brings them; raises UserError for an unknown name."""
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise UserError(
                f"unknown sampling parameter {', '.join(unknown)}; known are {', '.join(known)}"
            )
        try:
            return cls(**values)
        except TypeError as error:  # a text where a number belongs
            raise UserError(f"sampling parameters {dict(values)}: {error}; give numbers") from error


def _whole(value: object, end: int) -> bool:
    """Whether it is an integer of [0, end)."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end


GREEDY = SamplingParams()
