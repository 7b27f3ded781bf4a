"""The EAGLE-3 head as a drafter: catch up with the committed text, then draft in a beam.

After every commit the head's committed rows are made of true target features alone, never of its
own guesses, so what it drafts depends on the committed text and on nothing else. Rows that ordinary
steps left behind are caught up before the next draft, and that time counts as drafting.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.backends.flat import FlatBatch
from engine.backends.protocol import Children
from engine.kernels.beam import BeamState
from engine.kernels.layout import lay_out_beam, lay_out_rows
from engine.protocol import Bools, Limits
from engine.state import SlotState, TreeState
from models.draft_head import DraftHead


class Eagle3Drafter:
    """Draft trees for the slots of a live engine. `features` [S, capacity, 3h] are the target's."""

    def __init__(self, head: DraftHead, features: Tensor, limits: Limits, capacity: int) -> None:
        self.head, self.features, self.limits = head, features, limits
        # Behind the context stand the scratch rows of the beams.
        rows = capacity + limits.max_depth * limits.max_width
        self.cache = head.new_cache(limits.slots, rows)
        self.done = np.zeros(limits.slots, np.int64)  # committed rows that have been run
        self.states = torch.zeros(
            limits.slots, limits.max_width, head.config.hidden_size, dtype=head.dtype
        )
        self.flat = FlatBatch(limits.slots * max(capacity, limits.max_width))

    def release(self, slot: int) -> None:
        """The slot's next request starts from nothing."""
        self.done[slot] = 0

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """Run the committed rows that are new and score the root's children."""
        context = np.where(drafting[0], slots.context[0], self.done)
        new = context - self.done
        # A slot without new rows would have nothing to draft from; a commit always brings one.
        mask = self.flat.mask(len(new), int(new.max()), int(context.max()))
        n = lay_out_rows(self.done, context, slots.text[0], 1, self.flat.rows, mask)
        batch = self.flat.batch(n, mask)
        states = self.head.combine(self.features[batch.slots, batch.rows])
        outputs = self.head.forward(batch, states, self.cache)
        last = np.flatnonzero(batch.rows.numpy() == context[self.flat.slots(n)] - 1)
        where = self.flat.slots(n)[last]
        outputs = outputs[torch.from_numpy(last)]
        self.states[torch.from_numpy(where), 0] = outputs
        self.done[:] = context
        self._score(outputs, where, np.zeros_like(where), children)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """Score the children of the beam that `step` made."""
        widest = self.limits.max_width
        length = int((slots.context[0] * (beam.size[0] > 0)).max()) + step * widest
        mask = self.flat.mask(len(beam.size[0]), int(beam.size[0].max()), length)
        n = lay_out_beam(
            beam.size[0],
            beam.candidate[0],
            beam.ancestors[0],
            trees.token[0],
            slots.context[0],
            step,
            self.flat.rows,
            mask,
        )
        batch = self.flat.batch(n, mask)
        where, place = self.flat.slots(n), self.flat.extra(n)
        parent = beam.parent_row[0][where, place]
        states = self.states[batch.slots, torch.from_numpy(parent)]
        outputs = self.head.forward(batch, states, self.cache)
        self.states[batch.slots, torch.from_numpy(place)] = outputs
        self._score(outputs, where, place, children)

    def _score(
        self, outputs: Tensor, slots: np.ndarray, places: np.ndarray, children: Children
    ) -> None:
        """Best children of each output [T, h], written at [slot, place]."""
        logits = self.head.logits(outputs)
        # The draft distribution is only ever compared with itself, float32 serves any dtype.
        probability, index = logits.float().softmax(-1).topk(self.limits.max_width, dim=-1)
        children.token[0][slots, places] = self.head.target_ids[index].numpy()
        children.probability[0][slots, places] = probability.double().numpy()
