"""A drafter around another one: everything is passed on until a subclass says otherwise.

But for drafting ahead: a subclass that changes what draft steps answer has to see them.
"""

from __future__ import annotations

from engine.backends.protocol import Children
from engine.drafters.protocol import Drafter
from engine.kernels.beam import BeamState
from engine.protocol import Bools
from engine.state import SlotState, TreeState


class DrafterWrapper(Drafter):
    """Passes every call on to `drafter`."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.name = drafter.name
        self.feature_layers, self.features = drafter.feature_layers, drafter.features
        self.roots = drafter.roots

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """The wrapped drafter's answer."""
        self.drafter.draft_first(drafting, slots, children)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """The wrapped drafter's answer."""
        self.drafter.draft_next(step, slots, trees, beam, children)

    def release(self, slot: int) -> None:
        """Pass it on."""
        self.drafter.release(slot)

    def memory_bytes(self) -> int:
        """The wrapped drafter's."""
        return self.drafter.memory_bytes()
