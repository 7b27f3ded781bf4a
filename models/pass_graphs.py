"""Passes of a network as CUDA graphs: captured ahead or on first need, replayed from then on.

What runs a pass is the caller's, which shapes there are `models.graph_tiers`' business. The device
that captures comes from outside: `CudaCapturer` here, `models.graph_interpreter` where there is no
card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from time import perf_counter
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from models.flashinfer_attention import FlashInferAttention, PagedAttention
from models.graph_attention import GraphAttention, StaticArray
from models.graph_tiers import GraphTiers, Tier
from models.kv_cache import KVCache, TokenBatch
from models.paged_batch import PagedBatch, lay_out_pages, no_pages, pad_pages, requests_of

Outputs = tuple[Tensor | None, ...]
Work = Callable[[TokenBatch, PagedAttention, Tensor], Outputs]
"""A pass over a batch and its states [T, width] that stand in static arrays: device work alone."""
WARM_UP_RUNS = 2  # compile, choose algorithms and allocate what must not happen in a capture


class Captured(NamedTuple):
    """Work that can be repeated on the same memory."""

    replay: Callable[[], None]
    outputs: Outputs  # rewritten by every replay; another graph's replay may overwrite them
    n_bytes: int  # of device memory that it holds


class Capturer(Protocol):
    """A device that captures work."""

    def capture(self, work: Callable[[], Outputs]) -> Captured:
        """The work, captured; its outputs hold nothing before the first replay."""
        ...


class CudaCapturer:
    """CUDA graphs on one card, in one pool of memory: a replay may overwrite another's results."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream(device)

    def capture(self, work: Callable[[], Outputs]) -> Captured:
        """Run the work on a side stream, where nothing else waits for it, then capture it there."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UP_RUNS):
                work()
        current.wait_stream(self.stream)
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()  # or what warming up has left would be counted as given back
        before = torch.cuda.memory_reserved(self.device)
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on using the card meanwhile.
        with torch.cuda.graph(
            graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"
        ):
            outputs = work()
        n_bytes = torch.cuda.memory_reserved(self.device) - before
        return Captured(graph.replay, outputs, max(n_bytes, 0))


class GraphPool:
    """The graphs of all networks of a server: what they hold together, and what ran without."""

    def __init__(self, capturer: Capturer, memory_bytes: int) -> None:
        """Nothing more is captured once graphs hold `memory_bytes`; the last one may pass them.

        Not counted: static arrays and the workspace, of one size for a network and its cache, and
        what every wrapper has besides, 128 KiB on the card and 256 KiB pinned (FlashInfer 0.6.18).
        """
        self.capturer, self.memory_bytes = capturer, memory_bytes
        self.used_bytes = 0
        self.captures = self.replays = 0
        self.captured_late = 0
        """Captures in the midst of serving, when a pass needed them."""
        self.late_s = 0.0
        """Time that these took: the engine's clock leaves it out."""
        self.eager_passes: Counter[str] = Counter()
        """Passes that no graph served, by reason: prompt, too large, memory, another cache."""

    @property
    def full(self) -> bool:
        """Whether nothing more may be captured."""
        return self.used_bytes >= self.memory_bytes

    def capture(self, work: Callable[[], Outputs], late: bool = False) -> Captured:
        """The work, captured and counted; `late` is while somebody waits for it."""
        begun = perf_counter()
        captured = self.capturer.capture(work)
        self.captures += 1
        self.used_bytes += captured.n_bytes
        if late:
            self.captured_late += 1
            self.late_s += perf_counter() - begun
        return captured


class PassGraphs:
    """The graphs of one network over one cache, whose last page belongs to no slot."""

    def __init__(
        self,
        pool: GraphPool,
        tiers: GraphTiers,
        attention: FlashInferAttention,
        cache: KVCache,
        heads: int,
        states_width: int = 0,
    ) -> None:
        """Passes take states [T, states_width] beside their tokens."""
        self.pool, self.tiers, self.cache, self.heads = pool, tiers, cache, heads
        self.spare_page = cache.keys.shape[1] - 1
        self.attention, device = attention, attention.device
        self.paged = GraphAttention(attention, cache, tiers)
        most = tiers.tokens[-1]
        self.tokens = StaticArray((most,), torch.int64, device)
        self.positions = StaticArray((most,), torch.int64, device)
        self.states = StaticArray((most, states_width), cache.keys.dtype, device)
        self.captured: dict[tuple[Tier, bool, Hashable], Captured] = {}

    def run(
        self, batch: TokenBatch, work: Work, variant: Hashable = None, states: Tensor | None = None
    ) -> Outputs | None:
        """Outputs of a pass over a batch on the host; None where it must be run without a graph.

        Every output has a row a token and is good until the next pass of any network of the pool.
        Works that are called by one `variant` are the same.
        """
        tier = self.tiers.of(requests_of(batch.slots.numpy())[1])
        if isinstance(tier, str):
            self.pool.eager_passes[tier] += 1
            return None
        total = len(batch.tokens)
        paged = lay_out_pages(batch, self.cache.tables, self.cache.page_size)
        key = tier, paged.mask is not None, variant
        captured = self.captured.get(key)
        if captured is None and self.pool.full:
            self.pool.eager_passes["memory"] += 1
            return None
        with self.attention.planning():
            plan = self._plan(paged, tier)
            self.tokens.put(batch.tokens)
            self.positions.put(batch.positions)
            if states is not None:
                self.states.put(states)
        if captured is None:
            captured = self.captured[key] = self._capture(tier, plan, work, late=True)
        captured.replay()
        self.pool.replays += 1
        return tuple(None if output is None else output[:total] for output in captured.outputs)

    def prepare(self, tier: Tier, masked: bool, work: Work, variant: Hashable = None) -> bool:
        """Capture a tier's graph ahead of its first pass; False where the pool is full.

        The pass that is captured is one of padding alone, so no slot's rows are read or written.
        """
        key = tier, masked, variant
        if key not in self.captured:
            if self.pool.full:
                return False
            with self.attention.planning():
                plan = self._plan(no_pages(masked), tier)
            self.captured[key] = self._capture(tier, plan, work)
        return True

    def _plan(self, paged: PagedBatch, tier: Tier) -> PagedAttention:
        """Attention over the batch, padded to the tier."""
        padded = pad_pages(paged, *tier, self.spare_page, self.cache.page_size)
        return self.paged.plan(padded, tier, self.heads)

    def _capture(
        self, tier: Tier, plan: PagedAttention, work: Work, late: bool = False
    ) -> Captured:
        static, there = self._static(tier), self.states.there[: tier.tokens]
        return self.pool.capture(lambda: work(static, plan, there), late)

    def _static(self, tier: Tier) -> TokenBatch:
        """The batch as a graph reads it; where its rows stand, `PagedAttention` knows."""
        nothing = self.tokens.there[:0]
        tokens, positions = (a.there[: tier.tokens] for a in (self.tokens, self.positions))
        return TokenBatch(tokens, positions, nothing, nothing, nothing, nothing, 0, 0)

    def drop(self) -> None:
        """Give the graphs' memory back."""
        self.pool.used_bytes -= sum(captured.n_bytes for captured in self.captured.values())
        self.captured.clear()
