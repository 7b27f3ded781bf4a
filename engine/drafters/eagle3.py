"""The EAGLE-3 head as a drafter: catch up with the committed text, then draft in a beam.

After every commit the head's committed rows are made of true target features alone, never of its
own guesses, so what it drafts depends on the committed text and on nothing else. Rows that ordinary
steps left behind are caught up before the next draft, and that time counts as drafting.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.backends.protocol import Children
from engine.drafters.committed_rows import CommittedRows, write_best
from engine.drafters.protocol import Drafter
from engine.kernels.beam import BeamState
from engine.protocol import Bools, Limits
from engine.state import SlotState, TreeState
from models.draft_head import DraftHead
from models.upload import upload_rows


class Eagle3Drafter(Drafter):
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
        self.head, self.features, self.feature_layers = head, features, feature_layers
        self.rows = CommittedRows(limits, capacity)
        self.cache = head.new_cache(limits.slots, self.rows.cache_rows)
        self.states = torch.zeros(
            limits.slots,
            limits.max_width,
            head.config.hidden_size,
            dtype=head.dtype,
            device=head.device,
        )

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """Run the committed rows that are new and score the root's children."""
        # Row i pairs the features at i with the token at i + 1, so the last row has the root.
        for new in self.rows.catch_up(drafting[0], slots.context[0], slots.text[0], 1):
            there = new.batch.on(self.head.device)
            states = self.head.combine(self.features[there.slots, there.rows])
            outputs = self.head.forward(new.batch, states, self.cache)
            if len(new.slots):
                last, done = upload_rows((new.last, new.slots), self.head.device)
                outputs = outputs[last]
                self.states[done, 0] = outputs
                at = new.slots, np.zeros_like(new.slots)
                write_best(self.head.logits(outputs), self.head.target_ids, at, children)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """Score the children of the beam that `step` made."""
        if not beam.size.any():
            return
        batch, where, place = self.rows.beam(step, slots.context[0], trees, beam)
        parent = beam.parent_row[0][where, place]
        slot, above, own = upload_rows((where, parent, place), self.head.device)
        outputs = self.head.forward(batch, self.states[slot, above], self.cache)
        self.states[slot, own] = outputs
        write_best(self.head.logits(outputs), self.head.target_ids, (where, place), children)

    def release(self, slot: int) -> None:
        """The slot's next request starts from nothing, and meets no NaN of this one."""
        if self.rows.done[slot]:
            self.cache.scrub(np.array([slot]))
        self.rows.done[slot] = 0

    def memory_bytes(self) -> int:
        """Cache, features and states."""
        cached = self.cache.bytes_per_token() * len(self.rows.done) * self.rows.cache_rows
        return cached + self.features.nbytes + self.states.nbytes
