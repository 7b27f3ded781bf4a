"""A drafter that does all its work and then proposes the right token as often as it is told.

For a text that is known beforehand (`engine.backends.forced`): a random network costs what a
trained one costs, and acceptance is what the table says.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.backends.protocol import Children, DraftedAhead
from engine.drafters.network import NetworkDrafter
from engine.drafters.protocol import Drafter
from engine.drafters.steering_there import SteeringThere
from engine.drafters.wrapper import DrafterWrapper
from engine.errors import UserError
from engine.kernels.beam import BeamState, new_beam
from engine.kernels.known_text import OFF_PATH, steer_children
from engine.known_texts import KnownTexts
from engine.protocol import Bools, Floats, Ints, Limits
from engine.state import SlotState, TreeState, new_trees


class Steered(DrafterWrapper):
    """`drafter` with the acceptance of a table, for requests whose text `texts` has.

    `chances[p][k]` is the probability that the right token at position p + 1 behind the root is the
    child of rank k of its parent, and so what a beam of width k + 1 gains over one of width k; the
    last row serves all deeper positions. A chain is accepted at position p with `chances[p][0]`.
    """

    def __init__(
        self,
        drafter: Drafter,
        chances: Sequence[Sequence[float]],
        vocab: int,
        limits: Limits,
        rng: np.random.Generator,
        texts: KnownTexts | None = None,
    ) -> None:
        """Raises UserError for a table whose rows are no probabilities."""
        super().__init__(drafter)
        self.vocab, self.rng, self.texts = vocab, rng, texts or KnownTexts()
        self.cumulative = _cumulative(chances)
        self.on_path = np.full((1, limits.slots), OFF_PATH)
        self._no_beam, self._no_trees = new_beam(1, limits), new_trees(1, limits)

    def draft_ahead(
        self, drafting: Bools, depth: Ints, width: Ints, slots: SlotState
    ) -> DraftedAhead | None:
        """All draft steps of a drafter that drafts ahead, steered on its device."""
        drafter = self.drafter
        if not (isinstance(drafter, NetworkDrafter) and drafter.ahead):
            return None
        steps = range(1, int(depth[drafting].max()) + 1)
        ranks = np.stack([self._ranks(step, drafting.shape)[0] for step in steps])
        steer = SteeringThere(self.texts, ranks, self.vocab, slots, drafter.device)
        return drafter.draft_ahead(drafting, depth, width, slots, steer)

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """The drafter's children of the roots, steered."""
        self.drafter.draft_first(drafting, slots, children)
        self._steer(1, drafting, slots, self._no_trees, self._no_beam, children)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """The drafter's children of the beam, steered."""
        self.drafter.draft_next(step, slots, trees, beam, children)
        self._steer(step + 1, beam.size > 0, slots, trees, beam, children)

    def _steer(
        self,
        depth: int,
        alive: Bools,
        slots: SlotState,
        trees: TreeState,
        beam: BeamState,
        children: Children,
    ) -> None:
        texts = self.texts
        steer_children(
            depth,
            alive,
            self._ranks(depth, alive.shape),
            texts.rows(slots.request),
            texts.tokens,
            texts.length,
            self.vocab,
            slots,
            trees,
            beam,
            self.on_path,
            *children,
        )

    def _ranks(self, depth: int, shape: tuple[int, ...]) -> Ints:
        """Drawn ranks of the right tokens at this depth, -1 for none; one for every slot."""
        bounds = self.cumulative[min(depth, len(self.cumulative)) - 1]
        rank = np.searchsorted(bounds, self.rng.random(shape), side="right")
        return np.where(rank < len(bounds), rank, -1)


def _cumulative(chances: Sequence[Sequence[float]]) -> list[Floats]:
    """Cumulative probabilities by position."""
    table = [np.asarray(row, float) for row in chances]
    for position, row in enumerate(table, start=1):
        if not len(row) or not (row >= 0).all() or not row.sum() <= 1 + 1e-9:
            raise UserError(
                f"steered drafter: the chances at position {position} are {row.tolist()}; expected "
                "probabilities by rank whose sum is at most 1"
            )
    if not table:
        raise UserError("steered drafter: no chances were given; expected a row for each position")
    return [np.cumsum(row) for row in table]
