"""The live backend on the CPU: target decoder, KV cache, draft head, for one replica.

Tree keys and values are written right behind a slot's context; committing moves the accepted ones
to the front and leaves the rest to be overwritten.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.backends.flat import FlatBatch
from engine.backends.protocol import Children, Choices
from engine.drafters.eagle3 import Eagle3Drafter
from engine.kernels.beam import BeamState
from engine.kernels.layout import accepted_moves, lay_out_rows, lay_out_trees
from engine.protocol import Bools, Floats, Limits
from engine.state import SlotState, TreeState
from engine.telemetry import resident_bytes
from models.decoder import Decoder
from models.draft_head import DraftHead

# A child outside the target's ten likeliest tokens is never let through by a margin (ours).
MARGIN_GUARD = 10


class LiveBackend:
    """Networks and caches that serve one replica."""

    def __init__(self, decoder: Decoder, head: DraftHead, limits: Limits, capacity: int) -> None:
        self.decoder, self.limits, self.capacity = decoder, limits, capacity
        self.cache = decoder.new_cache(limits.slots, capacity)
        width = 3 * decoder.config.hidden_size
        self.features = torch.zeros(limits.slots, capacity, width, dtype=decoder.dtype)
        self.drafter = Eagle3Drafter(head, self.features, limits, capacity)
        self.flat = FlatBatch(max(limits.slots * (limits.max_nodes + 1), capacity))
        self.moves = np.zeros((3, limits.slots * limits.max_depth), np.int64)

    @torch.inference_mode()
    def prefill(self, slot: int, slots: SlotState, end: int) -> int:
        """Run prompt tokens [prefilled, end) of a slot; greedy token after the last."""
        first = slots.prefilled[0].copy()
        stop = first.copy()
        stop[slot] = end
        mask = self.flat.mask(len(stop), int(end - first[slot]), int(end))
        n = lay_out_rows(first, stop, slots.text[0], 0, self.flat.rows, mask)
        hidden = self._forward(n, mask)
        if end < slots.prompt_tokens[0, slot]:
            return -1  # the vocabulary product is for the prompt's last token alone
        return int(self.decoder.logits(hidden[-1:]).argmax())

    @torch.inference_mode()
    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """Catch up and score the root's children."""
        self.drafter.draft_first(drafting, slots, children)

    @torch.inference_mode()
    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """Score the children of the beam."""
        self.drafter.draft_next(step, slots, trees, beam, children)

    @torch.inference_mode()
    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        """One target pass over all kept trees; the greedy token after every node."""
        nodes = trees.kept[0].sum(1)
        width = int(nodes.max()) + 1
        length = int((slots.context[0] * decoding[0]).max()) + width
        mask = self.flat.mask(len(nodes), width, length)
        n = lay_out_trees(
            decoding[0],
            slots.context[0],
            slots.last_token[0],
            trees.kept[0],
            trees.parent[0],
            trees.depth[0],
            trees.token[0],
            self.flat.rows,
            mask,
        )
        logits = self.decoder.logits(self._forward(n, mask))
        tokens = logits.argmax(-1).numpy()
        where, candidate = self.flat.slots(n), self.flat.extra(n)
        is_root = candidate < 0
        choices.root_token[0][where[is_root]] = tokens[is_root]
        choices.node_token[0][where[~is_root], candidate[~is_root]] = tokens[~is_root]
        if (margin[0][decoding[0]] < 1).any():
            self._log_ratios(logits, where, candidate, trees, choices)

    def _log_ratios(
        self,
        logits: Tensor,
        where: np.ndarray,
        candidate: np.ndarray,
        trees: TreeState,
        choices: Choices,
    ) -> None:
        """Each kept node's log probability over the top one's at its parent, guarded."""
        row = {(int(s), int(c)): i for i, (s, c) in enumerate(zip(where, candidate, strict=True))}
        children = np.flatnonzero(candidate >= 0)
        parents = [
            row[int(where[i]), int(trees.parent[0, where[i], candidate[i]])] for i in children
        ]
        tokens = trees.token[0][where[children], candidate[children]]
        above = logits[parents].float()
        top = above.topk(min(MARGIN_GUARD, above.shape[-1]), dim=-1).values
        own = above[torch.arange(len(parents)), torch.from_numpy(tokens)]
        ratio = torch.where(own >= top[:, -1], own - top[:, 0], -torch.inf)
        choices.log_ratio[0][where[children], candidate[children]] = ratio.double().numpy()

    def _forward(self, n: int, mask: Bools) -> Tensor:
        """Target pass over the n tokens laid out; keeps their features for the drafter."""
        batch = self.flat.batch(n, mask)
        capture = self.decoder.config.feature_layers
        hidden, features = self.decoder.forward(batch, self.cache, capture)
        if features is not None:
            self.features[batch.slots, batch.rows] = features
        return hidden

    @torch.inference_mode()
    def commit(self, decoding: Bools, slots: SlotState, trees: TreeState) -> None:
        """Move accepted rows behind the root, in the cache and among the features."""
        n = accepted_moves(
            decoding[0],
            slots.context[0],
            trees.path[0],
            # The last emitted token is never in the cache: it is the next root.
            np.minimum(trees.path_length[0], trees.accepted_length[0] - 1),
            trees.kept[0],
            self.moves,
        )
        if n:
            where, sources, targets = torch.from_numpy(self.moves[:, :n])
            self.cache.move(where, sources, targets)
            self.features[where, targets] = self.features[where, sources]

    def release(self, slot: int) -> None:
        """The slot's request has ended."""
        self.drafter.release(slot)

    def memory_bytes(self) -> int:
        """Resident memory of this process."""
        return resident_bytes()
