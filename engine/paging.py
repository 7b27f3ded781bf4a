"""The pool of KV pages: which slot owns which page, and what is free.

It knows pages, slots and numbers of tokens; storage is `models.kv_cache`'s, which reads `tables`.
How a plan is made to fit, and who gives way when nothing fits, is `engine.fitting`'s.
"""

from __future__ import annotations

from typing import overload

import numpy as np

from engine.errors import UserError
from engine.protocol import Ints


class PagePool:
    """`pages` pages of `page_size` tokens, lent to `slots` slots of at most `tokens_per_slot`.

    Every page is either on the free list or in exactly one slot's table. Taking or giving back a
    page is O(1). A slot's first page is the one of its own number where that is free: with one
    page a slot attention then finds a batch's pages side by side and need not gather them.
    """

    def __init__(self, pages: int, page_size: int, slots: int, tokens_per_slot: int) -> None:
        if page_size < 1:
            raise UserError(f"a page of {page_size} tokens was asked for; give at least 1")
        self.pages, self.page_size, self.tokens_per_slot = pages, page_size, tokens_per_slot
        per_slot = self.pages_for(tokens_per_slot)
        if pages < per_slot:
            # Else a request could wait for ever with the whole pool to itself.
            raise UserError(
                f"the KV pool has {pages} pages of {page_size} tokens, but one request may need "
                f"{tokens_per_slot} tokens; give at least {per_slot * page_size} tokens"
            )
        self.tables: Ints = np.full((slots, per_slot), -1, np.int64)
        self.owned: Ints = np.zeros(slots, np.int64)  # [S] pages in each slot's table
        # Pages of nobody are _stack[:_unowned], the next one to be taken last.
        self._stack: Ints = np.arange(pages - 1, -1, -1)
        self._place: Ints = np.arange(pages - 1, -1, -1)  # where a page stands in the stack
        self._unowned = pages
        self.withdrawn = 0
        """Pages that nobody may take for now, whichever they are (`withdraw`)."""

    @classmethod
    def sized(
        cls, slots: int, capacity: int, page_size: int | None = None, tokens: int | None = None
    ) -> PagePool:
        """A pool for `slots` requests of at most `capacity` tokens.

        `page_size` None is one page a request, `tokens` None is room for all slots at capacity;
        a smaller pool is memory pressure. Raises UserError when not even one request fits.
        """
        size = capacity if page_size is None else min(page_size, capacity)
        per_slot = -(-capacity // max(size, 1))
        pages = slots * per_slot if tokens is None else tokens // max(size, 1)
        return cls(min(pages, slots * per_slot), size, slots, capacity)

    # -- numbers ---------------------------------------------------------------------------------

    @property
    def free_pages(self) -> int:
        """Pages that may be taken; negative where slots own more than a withdrawal leaves them."""
        return self._unowned - self.withdrawn

    @property
    def used_pages(self) -> int:
        """Pages that some slot owns."""
        return self.pages - self._unowned

    @overload
    def pages_for(self, tokens: int) -> int: ...
    @overload
    def pages_for(self, tokens: Ints) -> Ints: ...
    def pages_for(self, tokens: int | Ints) -> int | Ints:
        """Pages that hold so many tokens of one slot."""
        return -(-tokens // self.page_size)

    def tree_pages(self, contexts: Ints) -> int:
        """Pages owned beyond context and root row, `contexts` [S]: held for trees alone."""
        return int(np.maximum(self.owned - self.pages_for(contexts + 1), 0).sum())

    def fragmentation(self, contexts: Ints) -> float:
        """Share of the reserved rows that hold no committed token, 0 when none is reserved."""
        reserved = self.owned * self.page_size
        total = int(reserved.sum())
        return 1.0 - float(np.minimum(contexts, reserved).sum()) / total if total else 0.0

    # -- taking and giving back --------------------------------------------------------------------

    def reserve(self, slot: int, tokens: int) -> bool:
        """Own at least the pages for so many tokens; False and unchanged when too few are free.

        Raises ValueError beyond `tokens_per_slot`: no waiting would ever help.
        """
        if tokens > self.tokens_per_slot:
            raise ValueError(f"slot {slot} asks for {tokens} tokens of {self.tokens_per_slot}")
        held = int(self.owned[slot])
        missing = self.pages_for(tokens) - held
        if missing <= 0:
            return True
        if missing > self.free_pages:
            return False
        if held == 0:
            self._bring_to_the_top(slot)
        left = self._unowned - missing
        self.tables[slot, held : held + missing] = self._stack[left : self._unowned][::-1]
        self.owned[slot] = held + missing
        self._unowned = left
        return True

    def reserve_all(self, tokens: Ints) -> bool:
        """`reserve` for every slot, tokens [S] (0: nothing more); all of them or none."""
        missing = self.pages_for(tokens) - self.owned
        if int(np.maximum(missing, 0).sum()) > max(self.free_pages, 0):
            return False
        for slot in np.flatnonzero(missing > 0).tolist():
            self.reserve(slot, int(tokens[slot]))
        return True

    def trim(self, slot: int, tokens: int) -> None:
        """Give back the pages beyond those for so many tokens."""
        keep, held = self.pages_for(tokens), int(self.owned[slot])
        if keep >= held:
            return
        given = self.tables[slot, keep:held]
        places = np.arange(self._unowned, self._unowned + held - keep)
        self._stack[places] = given[::-1]
        self._place[given[::-1]] = places
        self._unowned += held - keep
        given[:] = -1
        self.owned[slot] = keep

    def trim_all(self, tokens: Ints) -> None:
        """`trim` every slot to tokens [S]."""
        for slot in np.flatnonzero(self.owned > self.pages_for(tokens)).tolist():
            self.trim(slot, int(tokens[slot]))

    def release(self, slot: int) -> None:
        """Give back all pages of the slot."""
        self.trim(slot, 0)

    def withdraw(self, share: float) -> None:
        """Leave slots all but this share of the pages, and never too few for one whole request.

        Nothing is taken from a slot: until enough has been given back `free_pages` is negative.
        """
        self.withdrawn = min(int(share * self.pages), self.pages - self.tables.shape[1])

    def claim(self, slots: Ints, rows: Ints) -> None:
        """Make sure that rows [T] of slots [T] may be written.

        The loop reserves before each step, so this finds nothing to do; who drives a backend by
        hand gets the pages here. Raises UserError when they are not to be had.
        """
        if (self.tables[slots, rows // self.page_size] >= 0).all():
            return
        tokens = np.zeros_like(self.owned)
        np.maximum.at(tokens, slots, rows + 1)
        if not self.reserve_all(tokens):
            raise UserError(
                f"a step over {len(rows)} tokens needs more KV pages than the {self.free_pages} "
                "that are free; fit the plan and reserve before the step, or give a larger pool"
            )

    def _bring_to_the_top(self, page: int) -> None:
        """Make a page the next one to be taken, if it is free."""
        if page >= self.pages:
            return
        place, top = int(self._place[page]), self._unowned - 1
        if place > top or self._stack[place] != page:
            return
        other = int(self._stack[top])
        self._stack[place], self._stack[top] = other, page
        self._place[other], self._place[page] = place, top

    # -- invariants --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise RuntimeError when a page is leaked or owned twice, or a table has a hole."""
        held = np.arange(self.tables.shape[1]) < self.owned[:, None]
        if ((self.tables >= 0) != held).any():
            raise RuntimeError("a block table does not hold the pages that it is said to own")
        known = np.concatenate((self._stack[: self._unowned], self.tables[held]))
        count = np.bincount(known, minlength=self.pages)
        for wrong, what in ((count > 1, "owned twice"), (count == 0, "leaked")):
            if wrong.any():
                raise RuntimeError(f"pages {np.flatnonzero(wrong).tolist()} are {what}")
        if len(count) > self.pages:
            raise RuntimeError(f"page {len(count) - 1} is owned, but there are {self.pages}")
