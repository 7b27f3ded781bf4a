"""The EAGLE-3 head as a drafter: catch up with the committed text, then draft in a beam.

After every commit the head's committed rows are made of true target features alone, never of its
own guesses, so what it drafts depends on the committed text and on nothing else. Rows that ordinary
steps left behind are caught up before the next draft, and that time counts as drafting.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from engine.drafters.committed_rows import BeamAt
from engine.drafters.network import NetworkDrafter
from engine.protocol import Bools, Ints, Limits
from engine.state import SlotState
from models.draft_head import DraftHead
from models.kv_cache import TokenBatch
from models.upload import upload_rows


class Eagle3Drafter(NetworkDrafter):
    """Draft trees from `features` [S, capacity, 3h], the target's at `feature_layers`."""

    name = "eagle3"
    features: Tensor

    def __init__(
        self,
        head: DraftHead,
        features: Tensor,
        limits: Limits,
        capacity: int,
        feature_layers: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(
            limits, capacity, head.new_cache, head.config.draft_vocab_size, head.target_ids
        )
        self.head, self.features, self.feature_layers = head, features, feature_layers
        self.states = torch.zeros(
            limits.slots,
            limits.max_width,
            head.config.hidden_size,
            dtype=head.dtype,
            device=head.device,
        )

    def committed(self, slots: SlotState) -> Ints:
        """Row i pairs the features at i with the token at i + 1, so the last row has the root."""
        return slots.context[0]

    def root_logits(self, drafting: Bools, slots: SlotState) -> Iterator[tuple[Tensor, Ints]]:
        """Run the committed rows that are new; behind the last one stand the root's children."""
        for new in self.rows.catch_up(drafting, self.committed(slots), slots.text[0], 1):
            there = new.batch.on(self.head.device)
            states = self.head.combine(self.features[there.slots, there.rows])
            outputs = self.head.forward(new.batch, states, self.cache)
            if len(new.slots):
                last, done = upload_rows((new.last, new.slots), self.head.device)
                outputs = outputs[last]
                self.states[done, 0] = outputs
                yield self.head.logits(outputs), new.slots

    def beam_logits(self, batch: TokenBatch, at: BeamAt) -> Tensor:
        """A node goes on from its parent's state and leaves its own."""
        outputs = self.head.forward(batch, self.states[at.slots, at.parents], self.cache)
        self.states[at.slots, at.places] = outputs
        return self.head.logits(outputs)

    def memory_bytes(self) -> int:
        """Cache, features and states."""
        return super().memory_bytes() + self.features.nbytes + self.states.nbytes
