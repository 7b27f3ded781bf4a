"""A drafter that fails costs one iteration's drafts, never a request.

Text does not depend on drafts, so an error in drafting is no reason to stop serving. It is logged
with its traceback when it happens first, and counted from then on.
"""

from __future__ import annotations

import logging

from engine.backends.protocol import Children, DraftedAhead
from engine.drafters.protocol import Drafter
from engine.drafters.wrapper import DrafterWrapper
from engine.kernels.beam import BeamState
from engine.protocol import Bools, Ints
from engine.state import SlotState, TreeState

LOG = logging.getLogger(__name__)


class Guarded(DrafterWrapper):
    """Falls back to ordinary decoding for a batch whose drafter raises."""

    def __init__(self, drafter: Drafter) -> None:
        super().__init__(drafter)
        self.failures = 0
        """Draft calls that raised."""

    def draft_ahead(
        self, drafting: Bools, depth: Ints, width: Ints, slots: SlotState
    ) -> DraftedAhead | None:
        """What the drafter drafted ahead, or nobody drafts in this iteration."""
        try:
            return self.drafter.draft_ahead(drafting, depth, width, slots)
        except Exception as error:  # as below
            self._note(error)
            drafting[:] = False
            return None

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """The drafter's children, or nobody drafts in this iteration."""
        try:
            self.drafter.draft_first(drafting, slots, children)
        except Exception as error:  # whatever a drafter raises, serving goes on
            self._note(error)
            drafting[:] = False

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """The drafter's children, or the whole batch's drafts are given up."""
        if not beam.size.any():
            return  # given up in an earlier step, or nobody drafts on
        try:
            self.drafter.draft_next(step, slots, trees, beam, children)
        except Exception as error:  # as above
            self._note(error)
            trees.size[:] = trees.scored[:] = 0
            beam.size[:] = 0

    def _note(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            LOG.warning(
                "drafter %s failed; its batch decodes without drafts, as will any later one that "
                "fails: those are only counted",
                self.name,
                exc_info=error,
            )
