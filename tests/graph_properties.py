"""What must hold of graph tiers and padding, for as many random cases as wanted.

The arrays are read as a kernel reads them, one request, row and bit at a time. Passes go through
`models.pass_graphs` on the tape of `models.graph_interpreter`, twice over the same graph, and give
what the same passes give without. `benchmarks.gpu` runs a thousand cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.flashinfer_attention import FlashInferAttention, PagedAttention
from models.graph_interpreter import TapeCapturer
from models.graph_tiers import GraphTiers, Tier
from models.kv_cache import KVCache, TokenBatch
from models.paged_batch import lay_out_pages, pack_mask, pad_pages
from models.pass_graphs import GraphPool, Outputs, PassGraphs
from tests.paged_properties import run_property
from tests.random_paged import LAYERS, Sizes, draw_batch, draw_paged

CPU = torch.device("cpu")
TIERS = GraphTiers(requests=(1, 2, 4, 8), tokens=(1, 2, 4, 8, 16, 32, 64), tree_tokens=9)
SPARE = 10**6  # a page number like no other


def tiers_are_the_smallest_that_fit(size: Sizes) -> None:
    """No smaller one would do, and whoever gets none is too large in some way."""
    rng = np.random.default_rng(size.seed)
    requests, tokens = (
        tuple(sorted({1, *rng.integers(1, most, size.slots).tolist()})) for most in (20, 90)
    )
    tiers = GraphTiers(requests, (*tokens, 100), tree_tokens=size.most_tokens)
    sizes = rng.integers(1, size.most_tokens + 3, int(rng.integers(1, 25)))
    fitting = [
        Tier(r, t)
        for r in tiers.requests
        for t in tiers.tokens
        if r >= len(sizes) and t >= sizes.sum() and t >= r
    ]
    tier = tiers.of(sizes)
    if sizes.max() > size.most_tokens:
        assert tier == "prompt"
    else:
        assert tier == (min(fitting) if fitting else "too large")


def padding_keeps_to_the_spare_page(size: Sizes) -> None:
    """The real part is the batch's own; the rest has legal lengths and writes to the spare page."""
    batch, cache, *_ = draw_paged(size)
    paged = lay_out_pages(batch, cache.tables, cache.page_size)
    tier = TIERS.of(paged.qo_indptr.diff().numpy())
    assert isinstance(tier, Tier)
    padded = pad_pages(paged, *tier, SPARE, cache.page_size)
    for ours, theirs in zip(padded[:-1], paged[:-1], strict=True):
        assert ours is not None and theirs is not None and ours.dtype == torch.int32
        assert ours[: len(theirs)].tolist() == theirs.tolist()
    tokens, pages = padded.qo_indptr.diff().tolist(), padded.kv_indptr.diff().tolist()
    last = padded.last_page_len.tolist()
    assert len(tokens) == len(pages) == len(last) == tier.requests + 1
    assert sum(tokens) == len(padded.requests) == len(padded.positions) == tier.tokens
    assert sum(pages) == len(padded.kv_indices)
    ends = padded.kv_indptr.tolist()
    for request, own in enumerate(tokens):
        assert pages[request] >= 1 and 1 <= last[request] <= cache.page_size
        rows = (pages[request] - 1) * cache.page_size + last[request]
        assert rows >= max(own, 1)
        place = padded.kv_indices[ends[request] : ends[request + 1]].tolist()
        assert (set(place) == {SPARE}) == (request >= len(paged.last_page_len))
        written = padded.positions[padded.requests == request].tolist()
        assert len(written) == own and all(0 <= row < rows for row in written)


def padded_masks_say_what_they_said(size: Sizes) -> None:
    """Bits of real requests stand where they stood; what follows is the padding's, and fits."""
    batch, cache, *_ = draw_paged(size)
    paged = lay_out_pages(batch, cache.tables, cache.page_size)
    tier = TIERS.of(paged.qo_indptr.diff().numpy())
    assert isinstance(tier, Tier)
    padded = pad_pages(paged, *tier, SPARE, cache.page_size)
    assert (padded.mask is None) == (paged.mask is None)
    if paged.mask is None or padded.mask is None:
        return
    packed, ends = pack_mask(paged.mask, paged.mask_ends(cache.page_size))
    longer, further = pack_mask(padded.mask, padded.mask_ends(cache.page_size))
    assert further[: len(ends)].tolist() == ends.tolist() and len(further) == tier.requests + 2
    assert longer[: len(packed)].tolist() == packed.tolist()
    assert int(further[-1]) == len(longer)
    missing = tier.tokens - len(batch.tokens)
    idle = further[len(paged.last_page_len) : -1].diff()
    assert not idle.any() and int(further[-1] - further[-2]) == (missing * missing + 7) // 8


class Pass(NamedTuple):
    """One pass of attention: a batch, block tables, and query, keys and values side by side."""

    batch: TokenBatch
    tables: np.ndarray
    mixed: Tensor  # [T, (heads + 2 kv_heads) * head_dim]


def replays_give_what_eager_passes_give(size: Sizes) -> None:
    """Outputs and caches are equal to the last bit, but for the spare page."""
    rng = np.random.default_rng(size.seed)
    heads = size.kv_heads * size.groups
    passes = draw_passes(size, rng, 3)
    slots, per_slot = passes[0].tables.shape
    eager = KVCache(
        LAYERS, slots * per_slot, size.kv_heads, size.page_size, size.head_dim, torch.float64
    )
    graphed = KVCache(
        LAYERS, slots * per_slot + 1, size.kv_heads, size.page_size, size.head_dim, torch.float64
    )
    for stored, other in ((eager.keys, graphed.keys), (eager.values, graphed.values)):
        stored.copy_(torch.from_numpy(rng.normal(size=stored.shape)))
        other[:, :-1] = stored
        other[:, -1] = float("nan")  # whoever reads it but the padding is known by it
    graphed.use_tables(np.zeros_like(passes[0].tables))
    capturer = TapeCapturer()
    attention = FlashInferAttention(capturer, CPU, workspace_bytes=16)
    pool = GraphPool(capturer, 2**30)
    width = passes[0].mixed.shape[1]
    graphs = PassGraphs(pool, TIERS, attention, graphed, heads, width)

    def attend(plan: PagedAttention, mixed: Tensor, cache: KVCache) -> Tensor:
        parts = mixed.view(len(mixed), -1, size.head_dim)
        query, keys, values = parts.split((heads, size.kv_heads, size.kv_heads), dim=1)
        plan.store(1, keys, values, cache)
        return plan.attend(1, query, cache, 0, 0)

    def work(batch: TokenBatch, plan: PagedAttention, states: Tensor) -> Outputs:
        return (attend(plan, states, graphed),)

    with torch.inference_mode():
        for batch, tables, mixed in passes:
            eager.use_tables(tables)
            graphed.use_tables(tables)
            wanted = attend(attention.plan(batch, eager, heads), mixed, eager)
            outputs = graphs.run(batch, work, states=mixed)
            assert outputs is not None and outputs[0] is not None
            assert torch.equal(outputs[0], wanted)
            assert torch.equal(graphed.keys[:, :-1], eager.keys)
            assert torch.equal(graphed.values[:, :-1], eager.values)
    assert pool.replays == len(passes) and not pool.eager_passes


def draw_passes(size: Sizes, rng: np.random.Generator, count: int) -> list[Pass]:
    """Passes over one pool of pages, every one with block tables of its own."""
    slots, width = size.slots + 2, size.kv_heads * (size.groups + 2) * size.head_dim
    rows = size.longest_context + 3 * size.most_tokens
    per_slot = -(-rows // size.page_size)
    passes = []
    for _ in range(count):
        batch = draw_batch(size, rng)
        tables = rng.permutation(slots * per_slot).reshape(slots, per_slot)
        mixed = torch.from_numpy(rng.normal(size=(len(batch.tokens), width)))
        passes.append(Pass(batch, tables, mixed))
    return passes


PROPERTIES: tuple[Callable[[Sizes], None], ...] = (
    tiers_are_the_smallest_that_fit,
    padding_keeps_to_the_spare_page,
    padded_masks_say_what_they_said,
    replays_give_what_eager_passes_give,
)


REFUSALS = (AssertionError, RuntimeError, ValueError)
"""What a property that does not hold raises: its own word, torch's, the interpreter's."""


def run_graph_properties(cases: int) -> tuple[int, int]:
    """All properties over so many random cases each: how many of them failed, cases that ran."""
    failures = ran = 0
    for check in PROPERTIES:

        def counted(size: Sizes, check: Callable[[Sizes], None] = check) -> None:
            nonlocal ran
            ran += 1
            check(size)

        try:
            run_property(counted, cases)
        except REFUSALS as error:
            failures += 1
            print(f"{check.__name__}: {error}")
    return failures, ran
