"""What the engine loop asks of a backend.

`live` runs networks; `replay` (to come) looks up what `live` recorded.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from engine.kernels.beam import BeamState
from engine.protocol import Bools, Floats, Ints, Limits
from engine.state import SlotState, TreeState


class Children(NamedTuple):
    """A draft step's answer: the best children of each beam node, best first."""

    token: Ints  # [R, S, W, W]
    probability: Floats  # [R, S, W, W] conditional on the parent


class Choices(NamedTuple):
    """What the target emits after each verified node."""

    root_token: Ints  # [R, S]
    node_token: Ints  # [R, S, N]
    log_ratio: Floats  # [R, S, N] a candidate's log probability over the top one's; for margins


def new_children(replicas: int, limits: Limits) -> Children:
    """Room for one draft step."""
    shape = (replicas, limits.slots, limits.max_width, limits.max_width)
    return Children(np.zeros(shape, np.int64), np.zeros(shape))


def new_choices(replicas: int, limits: Limits) -> Choices:
    """Room for one verification."""
    slots = (replicas, limits.slots)
    nodes = (*slots, limits.max_candidates)
    return Choices(np.zeros(slots, np.int64), np.zeros(nodes, np.int64), np.full(nodes, -np.inf))


class Backend(Protocol):
    """Prefill, draft, verify and commit for the slots of all replicas."""

    def prefill(self, slot: int, slots: SlotState, end: int) -> int:
        """Run the slot's prompt tokens [prefilled, end); the first token once all are through."""
        ...

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """Catch up with the committed text and score the root's children (into place 0)."""
        ...

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """Score the children of the beam that draft step `step` made."""
        ...

    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        """One target pass over root and kept nodes of every decoding slot."""
        ...

    def commit(self, decoding: Bools, slots: SlotState, trees: TreeState) -> None:
        """Keep what belongs to the accepted path; called before the slots' arrays move on."""
        ...

    def release(self, slot: int) -> None:
        """The slot's request has ended."""
        ...

    def memory_bytes(self) -> int:
        """Memory that serving holds."""
        ...
