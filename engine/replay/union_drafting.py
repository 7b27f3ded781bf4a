"""Draft at many places of one text side by side, in the union of all beam widths.

The drafter's committed rows hang on the text alone, so they are run once and copied to every slot;
then each slot drafts at a place of its own. EAGLE-3 heads only.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.backends.protocol import Children
from engine.drafters.committed_rows import CommittedRows, write_best
from engine.kernels.beam import new_beam
from engine.kernels.union_beam import grow_union, new_widths, union_limits
from engine.protocol import Ints
from engine.state import new_trees
from models.draft_head import DraftHead


class UnionDrafter:
    """A head, its cache and the trees of as many places as it has slots.

    `trees` and `widths` hold what `draft` made last.
    """

    def __init__(
        self, head: DraftHead, slots: int, capacity: int, max_depth: int, max_width: int
    ) -> None:
        """`capacity` is the longest text in tokens."""
        limits = union_limits(slots, max_depth, max_width)
        self.head, self.limits = head, limits
        self.rows = CommittedRows(limits, capacity)
        self.cache = head.new_cache(slots, self.rows.cache_rows)
        self.trees, self.beam = new_trees(1, limits), new_beam(1, limits)
        self.widths = new_widths(1, limits)
        shape = (1, slots, limits.max_width, max_width)
        self.children = Children(np.zeros(shape, np.int64), np.zeros(shape))
        width = head.config.hidden_size
        self.states = torch.zeros(slots, limits.max_width, width, dtype=head.dtype)
        self.text = np.zeros((slots, capacity), np.int64)
        self.outputs = torch.empty(0, width, dtype=head.dtype)  # of committed rows

    @torch.inference_mode()
    def read(self, text: Ints, features: Tensor) -> None:
        """Take a text [L] up, with the target's features of all its tokens but the last."""
        # Row i pairs the features at i with the token at i + 1; the text's last token is no root.
        rows = len(text) - 2
        self.text[0, : len(text)] = text
        self.rows.done[:] = 0
        first = np.arange(self.limits.slots) == 0
        outputs = []
        for new in self.rows.catch_up(first, np.where(first, rows, 0), self.text, 1):
            states = self.head.combine(features[new.batch.rows])
            outputs.append(self.head.forward(new.batch, states, self.cache))
        self.outputs = torch.cat(outputs)
        self.cache.share(0, rows)

    @torch.inference_mode()
    def root_logits(self, roots: Ints) -> Tensor:
        """What the drafter says behind the text's tokens `roots` [n]: logits [n, V_draft]."""
        return self.head.logits(self.outputs[torch.from_numpy(roots - 1)])

    @torch.inference_mode()
    def draft(self, roots: Ints) -> Tensor:
        """Draft behind the text's tokens `roots` [n], n ≤ slots; their logits [n, V_draft].

        Scratch rows overwrite what stands behind a slot's root: between two calls of `read` a
        slot's roots must come from the end of the text to its beginning.
        """
        n, slots = len(roots), self.limits.slots
        alive = np.arange(slots)[None] < n
        committed = np.zeros(slots, np.int64)
        committed[:n] = roots
        self.states[:n, 0] = self.outputs[torch.from_numpy(roots - 1)]
        logits = self.root_logits(roots)
        trees, beam, children = self.trees, self.beam, self.children
        at = np.arange(n), np.zeros(n, np.int64)
        write_best(logits, self.head.target_ids, at, children)
        grow_union(1, alive, *children, trees, beam, self.widths)
        for step in range(1, self.limits.max_depth):
            if not beam.size.any():
                break
            batch, where, place = self.rows.beam(step, committed, trees, beam)
            parent = torch.from_numpy(beam.parent_row[0][where, place])
            outputs = self.head.forward(batch, self.states[batch.slots, parent], self.cache)
            self.states[batch.slots, torch.from_numpy(place)] = outputs
            write_best(self.head.logits(outputs), self.head.target_ids, (where, place), children)
            grow_union(step + 1, alive, *children, trees, beam, self.widths)
        return logits
