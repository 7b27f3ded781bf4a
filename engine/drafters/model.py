"""A smaller decoder with the target's vocabulary as a drafter (Leviathan et al. 2023).

It keeps keys and values of its own. Before it drafts, all committed tokens that it has not read
yet go through in one pass, accepted drafts among them: what a beam wrote is never kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from engine.drafters.committed_rows import BeamAt
from engine.drafters.network import NetworkDrafter
from engine.errors import UserError
from engine.protocol import Bools, Ints, Limits
from engine.state import SlotState
from models.decoder import Decoder
from models.kv_cache import TokenBatch
from models.upload import upload_rows


class ModelDrafter(NetworkDrafter):
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
        super().__init__(limits, capacity, decoder.new_cache, own.vocab_size)
        self.decoder = decoder

    def committed(self, slots: SlotState) -> Ints:
        """All tokens of the text, the root included."""
        return slots.context[0] + 1

    def root_logits(self, drafting: Bools, slots: SlotState) -> Iterator[tuple[Tensor, Ints]]:
        """Read the committed tokens that are new; the root is the last of them."""
        for new in self.rows.catch_up(drafting, self.committed(slots), slots.text[0], 0):
            hidden, _ = self.decoder.forward(new.batch, self.cache)
            if len(new.slots):
                (last,) = upload_rows((new.last,), self.decoder.device)
                yield self.decoder.logits(hidden[last]), new.slots

    def beam_logits(self, batch: TokenBatch, at: BeamAt) -> Tensor:
        """A node needs nothing of its parent but what the cache holds."""
        hidden, _ = self.decoder.forward(batch, self.cache)
        return self.decoder.logits(hidden)
