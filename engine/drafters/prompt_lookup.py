"""Drafting without weights: what followed the latest tokens earlier in prompt and output.

Prompt lookup (Saxena 2023) made a tree: several continuations become siblings, with probabilities
from their counts. It keeps nothing between iterations, the committed text is all its state.
"""

from __future__ import annotations

import numpy as np

from engine.backends.protocol import Children
from engine.drafters.ngrams import continue_beams
from engine.drafters.protocol import Drafter
from engine.kernels.beam import BeamState
from engine.protocol import Bools, Limits
from engine.state import SlotState, TreeState

LONGEST_NGRAM = 4  # ours; transformers' prompt lookup takes 2 at most unless told otherwise


class PromptLookup(Drafter):
    """Draft trees from the n-grams, n ≤ `longest`, of each slot's own text."""

    name = "prompt-lookup"

    def __init__(self, vocab: int, limits: Limits, longest: int = LONGEST_NGRAM) -> None:
        self.longest = longest
        self.root_beams = np.full((limits.slots, limits.max_width), -1)
        self.no_tree = np.zeros((limits.slots, 1), np.int64)
        self.counts = np.zeros(vocab, np.int64)

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """Continue the committed texts; one that never held its last token is not drafted for."""
        size = drafting[0].astype(np.int64)
        slots.draft_entropy[0, drafting[0]] = np.nan  # counts of n-grams are no distribution
        self._continue(size, self.root_beams, self.no_tree, self.no_tree, slots, children)
        drafting[0] &= children.probability[0, :, 0, 0] > 0

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """Continue the beam's paths; a slot none of whose paths goes on stops."""
        size = beam.size[0]
        self._continue(size, beam.candidate[0], trees.parent[0], trees.token[0], slots, children)
        in_beam = np.arange(beam.candidate.shape[2]) < size[:, None]
        goes_on = (in_beam & (children.probability[0, :, :, 0] > 0)).any(1)
        size[~goes_on] = 0

    def memory_bytes(self) -> int:
        """One counter a token."""
        return self.counts.nbytes

    def _continue(
        self,
        size: np.ndarray,
        candidate: np.ndarray,
        parent: np.ndarray,
        drafted: np.ndarray,
        slots: SlotState,
        children: Children,
    ) -> None:
        continue_beams(
            size,
            candidate,
            parent,
            drafted,
            slots.context[0] + 1,  # the root is emitted, hence text too
            slots.text[0],
            self.longest,
            self.counts,
            children.token[0],
            children.probability[0],
        )
