"""A smaller decoder with the target's vocabulary as a drafter (Leviathan et al. 2023).

It keeps keys and values of its own. Before it drafts, all committed tokens that it has not read
yet go through in one pass, accepted drafts among them: what a beam wrote is never kept.
"""

from __future__ import annotations

import numpy as np

from engine.backends.protocol import Children
from engine.drafters.committed_rows import CommittedRows, write_best
from engine.drafters.protocol import Drafter
from engine.errors import UserError
from engine.kernels.beam import BeamState
from engine.protocol import Bools, Limits
from engine.state import SlotState, TreeState
from models.decoder import Decoder
from models.upload import upload_rows


class ModelDrafter(Drafter):
    """Draft trees with `decoder` for `target`, whose token ids it must share."""

    name = "model"

    def __init__(self, decoder: Decoder, target: Decoder, limits: Limits, capacity: int) -> None:
        """Raises UserError for another vocabulary or too few positions."""
        own, wanted = decoder.config, target.config
        if own.vocab_size != wanted.vocab_size:
            raise UserError(
                f"the draft model has {own.vocab_size} tokens, the target {wanted.vocab_size}; "
                "choose a draft model with the target's own vocabulary"
            )
        if own.context < capacity:
            raise UserError(
                f"the draft model has {own.context} positions, fewer than the {capacity} rows a "
                "slot; lower the capacity or choose another draft model"
            )
        self.decoder = decoder
        self.rows = CommittedRows(limits, capacity)
        self.cache = decoder.new_cache(limits.slots, self.rows.cache_rows)

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """Read the committed tokens that are new, the root included, and score its children."""
        committed = slots.context[0] + 1
        for new in self.rows.catch_up(drafting[0], committed, slots.text[0], 0):
            hidden, _ = self.decoder.forward(new.batch, self.cache)
            if len(new.slots):
                at = new.slots, np.zeros_like(new.slots)
                (last,) = upload_rows((new.last,), self.decoder.device)
                write_best(self.decoder.logits(hidden[last]), None, at, children)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """Score the children of the beam that `step` made; a node sees its ancestors alone."""
        if not beam.size.any():
            return
        batch, where, place = self.rows.beam(step, slots.context[0] + 1, trees, beam)
        hidden, _ = self.decoder.forward(batch, self.cache)
        write_best(self.decoder.logits(hidden), None, (where, place), children)

    def release(self, slot: int) -> None:
        """The slot's next request starts from nothing, and meets no NaN of this one."""
        if self.rows.done[slot]:
            self.cache.scrub(np.array([slot]))
        self.rows.done[slot] = 0

    def memory_bytes(self) -> int:
        """The cache."""
        return self.cache.bytes_per_token() * len(self.rows.done) * self.rows.cache_rows
