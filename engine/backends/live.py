"""The live backend: target decoder, KV cache, drafter, for one replica, on the networks' device.

Tree keys and values are written right behind a slot's context; committing moves the accepted ones
to the front and gives back the pages that held nothing else. What a step needs is reserved in
`pool` before it.

Layouts, trees and tokens are the host's; networks, caches and features may be on a card. Then a
step goes there without waiting, and waits where it reads: what was drafted, the tokens of a
verification. The engine's clock is read behind these reads, so each part is charged the work
that it asked for. Moves of a commit are not waited for and fall to the next read.
"""

from __future__ import annotations

from time import monotonic

import numpy as np
import torch
from torch import Tensor

from engine.backends.flat import FlatBatch
from engine.backends.protocol import Children, Choices, DraftedAhead
from engine.card import held_bytes, wait_for
from engine.drafters.build import DraftNetwork, make_drafter
from engine.drafters.protocol import Drafter
from engine.kernels.beam import BeamState
from engine.kernels.layout import accepted_moves, lay_out_rows, lay_out_trees
from engine.paging import PagePool
from engine.protocol import Bools, Floats, Ints, Limits
from engine.request import Request
from engine.sampling.logprobs import emitted_logprobs
from engine.sampling.sampler import Sampler
from engine.state import SlotState, TreeState
from models.decoder import Decoder
from models.upload import upload_rows

MEMORY_AGE_S = 0.1


class LiveBackend:
    """Networks and caches that serve one replica."""

    def __init__(
        self,
        decoder: Decoder,
        head: DraftNetwork | None,
        limits: Limits,
        capacity: int,
        page_size: int | None = None,
        kv_pool_tokens: int | None = None,
        drafter: Drafter | None = None,
    ) -> None:
        """By default a request is one page; `PagePool.sized` says what the page parameters mean.

        Without a `drafter` one is made of `head` (`make_drafter`).
        """
        self.decoder, self.limits, self.capacity = decoder, limits, capacity
        self.vocab_size = decoder.config.vocab_size
        self.pool = PagePool.sized(limits.slots, capacity, page_size, kv_pool_tokens)
        # A cache of so many slots of one page each is the pool's storage.
        self.cache = decoder.new_cache(self.pool.pages, self.pool.page_size)
        self.cache.use_tables(self.pool.tables)
        self.drafter = drafter or make_drafter(head, decoder, limits, capacity)
        self.features, self.capture = self.drafter.features, self.drafter.feature_layers or ()
        self.flat = FlatBatch(max(limits.slots * (limits.max_nodes + 1), capacity))
        self.sampler = Sampler(limits.slots)
        self.moves = np.zeros((3, limits.slots * limits.max_depth), np.int64)
        self._memory_bytes, self._memory_read_s = 0, -float("inf")

    def admit(self, slot: int, request: Request) -> None:
        """The request's sampling parameters hold for the slot from now on."""
        self.sampler.admit(slot, request)

    @torch.inference_mode()
    def prefill(self, slot: int, slots: SlotState, end: int) -> int:
        """Run prompt tokens [prefilled, end) of a slot; the sampler's token after the last."""
        first = slots.prefilled[0].copy()
        stop = first.copy()
        stop[slot] = end
        mask = self.flat.mask(len(stop), int(end - first[slot]), int(end))
        n = lay_out_rows(first, stop, slots.text[0], 0, self.flat.rows, mask)
        hidden = self._forward(n, mask)
        if end < slots.to_prefill[0, slot]:
            wait_for(self.decoder.device)  # nothing is read, but the chunk's time is its own
            return -1  # the vocabulary product is for the prompt's last token alone
        logits = self.decoder.logits(hidden[-1:])
        return self.sampler.first(slot, logits, slots.text[0], end)

    def watch_divergence(self, wanted: bool) -> None:
        """The drafter keeps what it said behind the roots, if it is one that can."""
        if self.drafter.roots is not None:
            self.drafter.roots.kept = wanted

    @torch.inference_mode()
    def draft_ahead(
        self, drafting: Bools, depth: Ints, width: Ints, slots: SlotState
    ) -> DraftedAhead | None:
        """Catch up and run all draft steps, if the drafter does so."""
        return self.drafter.draft_ahead(drafting, depth, width, slots)

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
        """One target pass over all kept trees; the sampler's token after every node."""
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
        where, candidate = self.flat.slots(n), self.flat.extra(n)
        self.sampler.choose(logits, where, candidate, margin[0], slots, trees, choices)
        if self.drafter.roots is not None and self.drafter.roots.kept:
            of_roots = np.flatnonzero((candidate < 0) & (trees.size[0] > 0)[where])
            missed = self.drafter.roots.divergence(logits, of_roots, where[of_roots])
            choices.divergence[0] = missed

    def first_logprob(self, slot: int) -> float:
        """Log probability of the slot's first token, if its request asks for such."""
        return float(self.sampler.first_logprob[slot])

    def emitted_logprobs(self, slot: int, trees: TreeState, choices: Choices) -> list[float]:
        """Log probabilities of what the walk let the slot emit, if its request asks for such."""
        return emitted_logprobs(slot, trees, choices)

    def _forward(self, n: int, mask: Bools) -> Tensor:
        """Target pass over the n tokens laid out; keeps their features for the drafter."""
        batch = self.flat.batch(n, mask)
        self.pool.claim(self.flat.slots(n), batch.rows.numpy())
        hidden, features = self.decoder.forward(batch, self.cache, self.capture)
        if self.features is not None and features is not None:
            there = batch.on(features.device)
            self.features[there.slots, there.rows] = features
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
            where, sources, targets = upload_rows(self.moves[:, :n], self.decoder.device)
            self.cache.move(where, sources, targets)
            if self.features is not None:
                self.features[where, targets] = self.features[where, sources]
        # What a slot that does not decode owns is left alone; the others keep their contexts.
        context = slots.context[0] + trees.accepted_length[0]
        self.pool.trim_all(np.where(decoding[0], context, self.pool.tokens_per_slot))

    def release(self, slot: int) -> None:
        """The slot's request has ended, or gives way to others: its pages are free."""
        if self.pool.owned[slot]:
            self.cache.scrub(self.pool.tables[slot, : self.pool.owned[slot]])
            self.pool.release(slot)
        self.sampler.release(slot)
        self.drafter.release(slot)

    def memory_bytes(self) -> int:
        """Resident memory of this process, on a card what tensors hold of it.

        At most MEMORY_AGE_S old: asking opens a file, or walks through the allocator's books.
        """
        now = monotonic()
        if now - self._memory_read_s > MEMORY_AGE_S:
            self._memory_read_s, self._memory_bytes = now, held_bytes(self.decoder.device)
        return self._memory_bytes
