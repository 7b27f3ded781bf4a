"""Room for laying tokens out, and the step from NumPy arrays to the networks' `TokenBatch`."""

from __future__ import annotations

import numpy as np
import torch

from engine.protocol import Bools, Ints
from models.kv_cache import TokenBatch


class FlatBatch:
    """Up to `most` tokens laid out by a kernel of `engine.kernels.layout`."""

    def __init__(self, most: int) -> None:
        self.rows = np.zeros((6, most), np.int64)

    def mask(self, n_slots: int, width: int, length: int) -> Bools:
        """A mask in which nobody sees anything yet."""
        return np.zeros((n_slots, width, length), np.bool_)

    def batch(self, n: int, mask: Bools) -> TokenBatch:
        """The first n tokens; the mask is cut to the slots between the first and the last."""
        flat = torch.from_numpy(self.rows[:, :n])
        first, end = int(self.rows[2, 0]), int(self.rows[2, n - 1]) + 1
        return TokenBatch(
            tokens=flat[0],
            positions=flat[1],
            slots=flat[2],
            rows=flat[3],
            offsets=flat[4],
            mask=torch.from_numpy(mask[first:end]),
            first_slot=first,
            end_slot=end,
        )

    def slots(self, n: int) -> Ints:
        """Slot of each token."""
        return self.rows[2, :n]

    def extra(self, n: int) -> Ints:
        """The sixth row: candidate or place of each token."""
        return self.rows[5, :n]
