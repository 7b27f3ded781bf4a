"""The batches of a drafter that has a network and a cache: catching up, then beams.

Rows of committed text stand at the front of a slot's cache and are run once. Behind them stand the
scratch rows of the beams, which the next commit overwrites. What runs on a batch is the drafter's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.backends.flat import FlatBatch
from engine.backends.protocol import Children
from engine.drafters.beam_on_device import BeamThere, beam_mask, known_ancestors
from engine.drafters.best_on_device import read_best_children
from engine.kernels.beam import BeamState
from engine.kernels.best import best_children
from engine.kernels.layout import lay_out_beam, lay_out_rows
from engine.protocol import Bools, Ints, Limits
from engine.state import TreeState
from models.kv_cache import TokenBatch
from models.upload import upload_rows

NO_IDS = np.empty(0, np.int64)
NOT_FINITE = "the draft network's logits are not numbers"
CATCH_UP_ROWS = 512  # rows a slot in one pass: bounds the mask, which grows with rows times length
# A pass pads all slots to its longest, so a newcomer's prompt is not run beside the few rows of
# all others.
NEAR_ROWS = 64


class CatchUp(NamedTuple):
    """Committed rows that run together."""

    batch: TokenBatch
    last: Ints  # [n] index in the batch of the rows that complete their slot
    slots: Ints  # [n] their slots


class BeamBatch(NamedTuple):
    """Beam nodes that run together."""

    batch: TokenBatch
    slots: Ints  # [T]
    places: Ints  # [T] place in the slot's beam


class BeamAt(NamedTuple):
    """Where the nodes [T] of a beam stand, on the drafter's device."""

    slots: Tensor
    places: Tensor
    parents: Tensor  # their parents' places in the beam before


class CommittedRows:
    """How far each slot's committed text has been run, and what is to run next."""

    def __init__(self, limits: Limits, capacity: int) -> None:
        self.limits, self.widest = limits, limits.max_width
        self.done = np.zeros(limits.slots, np.int64)  # committed rows that have been run
        self.cache_rows = capacity + limits.max_depth * limits.max_width
        self.flat = FlatBatch(limits.slots * max(min(capacity, CATCH_UP_ROWS), self.widest))

    def catch_up(self, drafting: Bools, end: Ints, text: Ints, shift: int) -> Iterator[CatchUp]:
        """Passes that bring drafting slots [S] to `end` rows [S]; row i holds text[i + shift].

        A pass counts as run when the next one is asked for, so an error leaves it to be repeated.
        """
        end = np.where(drafting, end, self.done)
        while (behind := self.done < end).any():
            near = behind & (end - self.done <= NEAR_ROWS)
            until = np.minimum(end, self.done + CATCH_UP_ROWS)
            if near.any():
                until = np.where(near, until, self.done)
            behind = self.done < until
            longest = int((until - self.done).max())
            mask = self.flat.mask(len(end), longest, int(until[behind].max()))
            n = lay_out_rows(self.done, until, text, shift, self.flat.rows, mask)
            batch, where = self.flat.batch(n, mask), self.flat.slots(n)
            last = np.flatnonzero(batch.rows.numpy() == end[where] - 1)
            yield CatchUp(batch, last, where[last])
            self.done[:] = until

    def beam(self, step: int, committed: Ints, trees: TreeState, beam: BeamState) -> BeamBatch:
        """The nodes of a beam that is not empty, behind `committed` rows [S] of text."""
        size = beam.size[0]
        length = int(committed[size > 0].max()) + step * self.widest
        mask = self.flat.mask(len(size), int(size.max()), length)
        n = lay_out_beam(
            size,
            beam.candidate[0],
            beam.ancestors[0],
            trees.token[0],
            committed,
            step,
            self.flat.rows,
            mask,
        )
        return BeamBatch(self.flat.batch(n, mask), self.flat.slots(n), self.flat.extra(n))

    def beam_there(
        self, step: int, committed: Ints, size: Ints, beam: BeamThere, device: torch.device
    ) -> tuple[BeamBatch, BeamAt]:
        """As `beam`, of one on a device, of which the host knows the `size` [S] alone, not all 0.

        Tokens stand there, and so does the mask unless the host knows it; all else as ever.
        """
        slots = np.arange(len(size)).repeat(size)
        places = np.arange(len(slots)) - (size.cumsum() - size)[slots]
        base, most = committed[slots], int(size.max())
        rows = base + (step - 1) * self.widest + places
        slot, place = upload_rows((slots, places), device)
        first, end = int(slots[0]), int(slots[-1]) + 1
        ancestors = known_ancestors(step, most, self.limits)
        if ancestors is None:
            ancestors = beam.ancestors[first:end, :most]
            (front,) = upload_rows((committed[first:end],), device)
        else:
            ancestors = ancestors.expand(end - first, -1, -1)
            front = torch.from_numpy(committed[first:end])
        length = int(base.max()) + step * self.widest
        batch = TokenBatch(
            tokens=beam.token[slot, place],
            positions=torch.from_numpy(base + step - 1),
            slots=torch.from_numpy(slots),
            rows=torch.from_numpy(rows),
            offsets=torch.from_numpy(places),
            mask=beam_mask(ancestors, front, length),
            first_slot=first,
            end_slot=end,
        )
        at = BeamAt(slot, place, beam.parent_row[slot, place])
        return BeamBatch(batch, slots, places), at


def write_best(logits: Tensor, tokens: Tensor | None, at: tuple[Ints, Ints], to: Children) -> None:
    """The best children by logits [T, V], written at (slots [T], places [T]).

    `tokens` [V] are the target's ids where the drafter numbers tokens otherwise. Logits on a card
    are searched there, and the host waits for what was found. Raises FloatingPointError where a
    logit is not finite.
    """
    # The draft distribution is only ever compared with itself, float32 serves any dtype.
    scores = logits.float()
    if scores.device.type == "cpu":
        ids = NO_IDS if tokens is None else tokens.numpy()
        fine = best_children(scores.numpy(), ids, *at, to.token[0], to.probability[0])
    else:
        fine = read_best_children(scores, tokens, *at, to)
    if not fine:
        raise FloatingPointError(NOT_FINITE)
