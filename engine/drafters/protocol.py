"""What the engine asks of a drafter: score the children of the root, then those of each beam.

A drafter writes into the same arrays whatever it is made of, so that the tree, its selection and
its verification know nothing of it. Three rules hold for all of them. After a commit its state is
a function of the committed text alone (ALGORITHMS.md §9); rows of rejected drafts are overwritten.
A call that raises leaves that state as it was. And text is never at stake: a bad drafter costs
time, not correctness.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from engine.backends.protocol import Children, DraftedAhead
from engine.drafters.roots import Roots
from engine.kernels.beam import BeamState
from engine.protocol import Bools, Ints
from engine.state import SlotState, TreeState


class Drafter(Protocol):
    """Proposes candidate trees for the slots of a live engine (one replica, R = 1).

    Siblings carry distinct tokens, best first, with probabilities in (0, 1] conditional on their
    parent. A node with fewer children than the arrays have room for gives the rest probability 0,
    behind the others: "no child". A subclass inherits what is optional.
    """

    name: str
    """What people call it."""
    feature_layers: tuple[int, ...] | None = None
    """Target layers whose inputs it wants to see, None for none."""
    roots: Roots | None = None
    """What it said behind the roots, for the divergence; None for one without a distribution."""
    features: Tensor | None = None
    """Where the backend writes those inputs side by side, [S, capacity, layers · h], by row."""

    def draft_ahead(
        self, drafting: Bools, depth: Ints, width: Ints, slots: SlotState
    ) -> DraftedAhead | None:
        """All draft steps of trees so deep and wide [R, S], in all as if asked for one by one.

        None where that is how they are to be asked for.
        """
        return None

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """Catch up with the committed text and score the children of the roots, into place 0.

        The root is the text's token at `context`. Writes `slots.draft_entropy` there, NaN where it
        has no distribution (`Roots.note` does it). Clears `drafting` [R, S], in place, where it has
        nothing to propose: those slots decode without drafts.
        """
        ...

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """Score the children of the beam that draft step `step` made; the beam may be empty.

        Sets `beam.size` [R, S] to 0, in place, where it has nothing more to propose.
        """
        ...

    def release(self, slot: int) -> None:
        """The slot's next request starts from nothing."""
        return  # a drafter that keeps nothing of a slot has nothing to forget

    def memory_bytes(self) -> int:
        """Bytes of its caches and buffers, the networks' weights not counted."""
        return 0
