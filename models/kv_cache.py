"""Keys and values of past tokens in pages, found through one block table per slot.

A slot is one request's place in the batch. Its row r stands in page `tables[slot, r // page_size]`,
at row r % page_size of it. The candidate tree's keys and values are written behind the slot's
context; `move` brings the accepted ones to the front once the target has spoken. Which pages and
rows belong to whom is the caller's bookkeeping (`engine.paging`).

Block tables are kept on the host, where they are changed. A cache on a device has a copy there,
which `send_tables` brings up to date before a pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.upload import upload, upload_rows

Place = slice | Tensor
"""Where slots' rows stand: a run of pages, one a slot, or page numbers [slots, pages_per_slot]."""


class TokenBatch(NamedTuple):
    """T tokens of several slots that go through a network together.

    The tokens of one slot stand side by side; `slots` covers the range [first_slot, end_slot).
    """

    tokens: Tensor  # [T] int64
    positions: Tensor  # [T] int64, rotary position (context length + depth in the tree)
    slots: Tensor  # [T] int64, slot of each token
    rows: Tensor  # [T] int64, row of the slot's cache that the token writes
    offsets: Tensor  # [T] int64, index of the token among its slot's tokens in this batch
    mask: Tensor  # [end - first, Q, L] bool: which cache rows a token may attend to
    first_slot: int
    end_slot: int

    @classmethod
    def whole(cls, tokens: Tensor) -> TokenBatch:
        """A text [T] that slot 0 reads from its beginning, each token all up to itself."""
        n, rows = len(tokens), torch.arange(len(tokens))
        mask = torch.ones(1, n, n, dtype=torch.bool).tril()
        return cls(tokens, rows, torch.zeros_like(rows), rows, rows, mask, 0, 1)

    def on(self, device: torch.device) -> TokenBatch:
        """The batch with what layers read of it on `device`; itself where it is there already.

        Tokens that were drafted on the device are there before the rest is. The mask stays where
        it is: a pass's plan takes of it what its attention needs.
        """
        if self.slots.device == device:
            return self
        drafted = self.tokens.device == device
        sent = upload(torch.stack(self[1:5] if drafted else self[:5]), device).unbind()
        tokens = self.tokens if drafted else sent[0]
        positions, slots, rows, offsets = sent[-4:]
        return self._replace(
            tokens=tokens, positions=positions, slots=slots, rows=rows, offsets=offsets
        )


class KVCache:
    """Keys and values [layers, pages, kv_heads, page_size, head_dim].

    As made here it has one page of `capacity` rows for every slot, in order, so attention reads it
    where it stands. With other tables (`use_tables`) the same storage is a pool of pages.
    """

    def __init__(
        self,
        layers: int,
        slots: int,
        kv_heads: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:
        """Zeros on `device`, on the CPU if None."""
        shape = (layers, slots, kv_heads, capacity, head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.page_size = capacity
        self.use_tables(np.arange(slots)[:, None])

    def use_tables(self, tables: NDArray[np.int64]) -> None:
        """Find rows by these block tables [slots, pages_per_slot] from now on, -1 for no page.

        The array is shared, not copied: whoever owns it changes it in place. Nobody may write or
        attend to a row whose page is -1.
        """
        self.tables = tables
        self._tables = torch.from_numpy(tables)
        self._sent: NDArray[np.int64] | None = None  # what a device knows of them
        if self.device.type != "cpu":
            self._tables = upload(self._tables, self.device)
            self._sent = tables.copy()

    @property
    def device(self) -> torch.device:
        """Where keys and values are."""
        return self.keys.device

    def send_tables(self) -> None:
        """Let the device know of changes to the tables; on the CPU it reads the tables themselves.

        Its copy stays at one address, for the sake of CUDA graphs.
        """
        if self._sent is None or np.array_equal(self._sent, self.tables):
            return
        self._sent[:] = self.tables
        self._tables.copy_(upload(torch.from_numpy(self._sent), self.device))

    def write(self, layer: int, batch: TokenBatch, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [T, kv_heads, head_dim] in the rows that `batch` names."""
        pages, rows = self._find(batch.slots, batch.rows)
        self.keys[layer][pages, :, rows] = keys
        self.values[layer][pages, :, rows] = values

    def move(self, slots: Tensor, sources: Tensor, targets: Tensor) -> None:
        """Copy row sources[i] of slot slots[i] to row targets[i], in every layer at once.

        The indices are where the cache is.
        """
        self.send_tables()
        self._copy(self._find(slots, sources), self._find(slots, targets))

    def share(self, source: int, rows: int) -> None:
        """Copy the first `rows` rows of slot `source` to every other slot."""
        slots = np.flatnonzero(np.arange(len(self.tables)) != source)
        every = np.tile(np.arange(rows), len(slots))
        to, row = upload_rows((slots.repeat(rows), every), self.device)
        self.send_tables()
        self._copy(self._find(torch.full_like(to, source), row), self._find(to, row))

    def scrub(self, pages: NDArray[np.int64]) -> None:
        """Zero these pages if they hold a NaN, before they change hands.

        What a mask hides still enters padded attention with weight 0, and 0 · NaN is NaN. A NaN in
        any layer reaches the last one, so that is where to look.
        """
        index = upload(torch.from_numpy(pages), self.device)
        if not self.values[-1, index].isfinite().all():
            self.keys[:, index] = 0
            self.values[:, index] = 0

    def locate(self, first: int, end: int, length: int) -> Place:
        """Where rows [0, length) of slots [first, end) stand, by the tables as last sent."""
        n_pages = -(-length // self.page_size)
        tables = self.tables[first:end, :n_pages]
        if n_pages == 1:
            owned = tables[:, 0] >= 0
            starts = (tables[:, 0] - np.arange(end - first))[owned]
            start = int(starts[0]) if len(starts) else 0
            # A slot without a page is read with the others, by nobody who may see its rows.
            if (starts == start).all() and 0 <= start <= self.keys.shape[1] - (end - first):
                return slice(start, start + end - first)
        pages = self._tables[first:end, :n_pages]
        # A shorter slot stands in for its missing pages itself: nobody else's NaN shall reach it.
        return torch.where(pages < 0, pages[:, :1], pages)

    def read(self, layer: int, place: Place, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values [slots, kv_heads, length, head_dim]: a view of a run, else gathered."""
        both = self.keys[layer][place], self.values[layer][place]
        if not isinstance(place, slice):
            # [slots, pages, kv_heads, page_size, head_dim] to one row of pages for each head.
            both = both[0].transpose(1, 2).flatten(2, 3), both[1].transpose(1, 2).flatten(2, 3)
        return both[0][:, :, :length], both[1][:, :, :length]

    def bytes_per_token(self) -> int:
        """Bytes that one row costs over all layers."""
        layers, _, kv_heads, _, head_dim = self.keys.shape
        return 2 * layers * kv_heads * head_dim * self.keys.element_size()

    def _find(self, slots: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Page and row within it of each row of a slot."""
        if self.tables.shape[1] == 1:
            return self._tables[slots, 0], rows
        return self._tables[slots, rows // self.page_size], rows % self.page_size

    def _copy(self, source: tuple[Tensor, Tensor], target: tuple[Tensor, Tensor]) -> None:
        for stored in (self.keys, self.values):
            stored[:, target[0], :, target[1]] = stored[:, source[0], :, source[1]]
