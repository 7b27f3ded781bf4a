"""Serving systems by name: a controller with frozen scheduler settings (ALGORITHMS.md §4).

A system is a controller, so whatever runs controllers runs systems too. Its `scheduling` says how
the engine under it has to be set; who builds the engine does that (`eval.contenders`). The named
ones are AdaServe's baselines (EuroSys 2026, section 6) as far as this engine can be set to them:
admission order, whole prompts or chunks, batch cap. What they leave out is in their docstrings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.errors import UserError
from engine.protocol import Controller, Plan, View
from policies.delegate import Delegate, delegating
from policies.fixed import Autoregressive, Chain


@dataclass(frozen=True)
class Scheduling:
    """What the engine under a system decides by itself; no plan changes it."""

    order: Literal["fcfs", "priority", "edf"] = "fcfs"
    """Who of the waiting requests is next. Under `priority` the class with the tightest TPOT
    objective goes first where the class table gives no priorities of its own."""
    prefill_tokens: int | None = None
    """Prompt tokens read between two decoding steps; None: every admitted prompt, whole."""
    max_running: int | None = None
    """Batch cap: requests that may hold a slot at a time; None: all slots."""
    overload: Literal["none", "reject", "degrade", "minimum-progress"] = "none"
    """What happens when more is demanded than the machine can do."""

    def __post_init__(self) -> None:
        for name in ("prefill_tokens", "max_running"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise UserError(f"{name} is {value!r}; expected a whole number of at least 1")


class System(Delegate):
    """A controller under frozen scheduler settings."""

    def __init__(self, name: str, controller: Controller, scheduling: Scheduling) -> None:
        """`compose` makes one of any controller."""
        super().__init__(controller)
        self.name, self.scheduling = name, scheduling

    def plan(self, view: View) -> Plan:
        """The controller's trees; prompts and batch as the system has them."""
        plan = self.controller.plan(view)
        # None leaves the prompts to the engine, which is set to the system's chunk.
        return plan._replace(prefill_tokens=None, max_running=self.scheduling.max_running)


def compose(name: str, controller: Controller, scheduling: Scheduling) -> System:
    """A system of any controller, also of one that chooses nodes or when to stop drafting."""
    return delegating(System, controller)(name, controller, scheduling)


def scheduling_of(controller: Controller) -> Scheduling | None:
    """A system's settings, also of one that is wrapped; None for a controller that is none."""
    while isinstance(controller, Delegate):
        if isinstance(controller, System):
            return controller.scheduling
        controller = controller.controller
    return None


class Vllm(System):
    """vLLM: prompts are read in full before anybody decodes on, no speculation, first come first.

    That is the scheduler of vLLM 0.8.4 as AdaServe compares with it; later versions read in chunks,
    which is `sarathi` here.
    """

    def __init__(self) -> None:
        """No parameters."""
        super().__init__("vllm", Autoregressive(), Scheduling())


class VllmPriority(System):
    """vLLM with a strict order of classes, the tightest objective first, and a small batch.

    A running request keeps its slot: this engine takes none away for a higher priority.
    """

    def __init__(self, batch: int = 4) -> None:
        """batch: requests that run at a time (the default is ours, AdaServe states none)."""
        super().__init__(
            f"vllm-priority({batch})",
            Autoregressive(),
            Scheduling(order="priority", max_running=batch),
        )


class Sarathi(System):
    """Sarathi-Serve: prompts in chunks between decoding steps, so that reading holds nobody up.

    Its budget of 2,048 tokens a step is for a GPU and counts decoding tokens as well; here it
    counts prompt tokens, and the default is this engine's for a processor.
    """

    def __init__(self, chunk_tokens: int = 64) -> None:
        """chunk_tokens: prompt tokens between two decoding steps."""
        name = "sarathi" if chunk_tokens == 64 else f"sarathi({chunk_tokens})"
        super().__init__(name, Autoregressive(), Scheduling(prefill_tokens=chunk_tokens))


class VllmSpec(System):
    """vLLM-Spec(k): as `vllm`, with a chain of k drafts for every request in every step."""

    def __init__(self, k: int = 4) -> None:
        """k: drafted tokens, at least 1."""
        super().__init__(f"vllm-spec({k})", Chain(k), Scheduling())
