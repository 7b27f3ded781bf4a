"""Graphed networks give what their networks give; and a stale array, a wait or a leak is noticed.

All on the tape of `models.graph_interpreter`, but for one test that needs a card.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.tiny import tiny_decoder, tiny_head
from models.attention import PlainAttention
from models.decoder import Decoder
from models.draft_head import DraftHead
from models.errors import UserError
from models.flashinfer_attention import FlashInferAttention
from models.flashinfer_interpreter import BatchPrefillWithPagedKVCacheWrapper
from models.graph_attention import INT_WORKSPACE_BYTES, StaticArray
from models.graph_interpreter import TapeCapturer
from models.graph_tiers import GraphTiers, Tier
from models.graphed import GraphedDecoder, GraphedHead, with_graphs
from models.kv_cache import KVCache, TokenBatch
from models.pass_graphs import CudaCapturer, GraphPool, PassGraphs
from tests.device_twin import CARD, device_twin
from tests.random_paged import Sizes, draw_batch

CPU = torch.device("cpu")
TIERS = GraphTiers(requests=(4,), tokens=(24,), tree_tokens=6)
PAGES, PAGE_SIZE, SLOTS = 40, 3, 6
LAYERS = (0, 3, 6)  # whose inputs are asked for
VOCAB = 64


@pytest.fixture(autouse=True)
def inference() -> Any:
    """As the engine runs them."""
    with torch.inference_mode():
        yield


def batch_of(seed: int, kind: str = "trees") -> tuple[TokenBatch, np.ndarray]:
    """A batch with tokens of its own, and block tables in random order."""
    rng = np.random.default_rng(seed)
    size = Sizes("trees" if kind == "trees" else "chains", 3, 9, 6, PAGE_SIZE, 1, 1, 2, seed)
    batch = draw_batch(size, rng)
    tokens = torch.from_numpy(rng.integers(0, VOCAB, len(batch.tokens)))
    tables = rng.permutation(PAGES)[: SLOTS * (PAGES // SLOTS)].reshape(SLOTS, -1)
    # Positions need not be rows: siblings share one.
    return batch._replace(tokens=tokens, positions=batch.rows // 2), tables


class Pair:
    """A decoder or head, plain and graphed, over caches that start alike."""

    def __init__(self, head: bool = False, memory_bytes: int = 2**30) -> None:
        self.capturer = TapeCapturer()
        self.pool = GraphPool(self.capturer, memory_bytes)
        decoder = tiny_decoder()
        self.plain: Decoder | DraftHead = tiny_head(decoder) if head else decoder
        self.graphed = with_graphs(self.plain, self.pool, TIERS)
        self.graphed.attention = FlashInferAttention(self.capturer, CPU, workspace_bytes=16)
        self.caches = [n.new_cache(PAGES, PAGE_SIZE) for n in (self.plain, self.graphed)]
        generator = torch.Generator().manual_seed(0)
        for name in ("keys", "values"):
            ours, theirs = (getattr(cache, name) for cache in self.caches)
            ours.copy_(torch.randn(ours.shape, generator=generator, dtype=ours.dtype))
            theirs[:, :PAGES] = ours

    def run(self, seed: int, kind: str = "trees") -> tuple[Tensor, Tensor]:
        """One pass by both: what they give, the features behind the hidden states."""
        batch, tables = batch_of(seed, kind)
        for cache in self.caches:
            cache.use_tables(tables)
        generator = torch.Generator().manual_seed(seed)
        states = torch.randn(len(batch.tokens), 32, generator=generator, dtype=torch.float64)
        results = []
        for network, cache in zip((self.plain, self.graphed), self.caches, strict=True):
            if isinstance(network, DraftHead):
                results.append(network.forward(batch, states, cache))
            else:
                hidden, features = network.forward(batch, cache, LAYERS)
                assert features is not None
                results.append(torch.cat((hidden, features), dim=1))
        return results[0], results[1]

    def check(self, seed: int, kind: str = "trees") -> None:
        """The same outputs, and the same caches but for the spare page."""
        torch.testing.assert_close(*self.run(seed, kind), rtol=0, atol=1e-9)
        for name in ("keys", "values"):
            ours, theirs = (getattr(cache, name) for cache in self.caches)
            torch.testing.assert_close(theirs[:, :PAGES], ours, rtol=0, atol=1e-9)


@pytest.mark.parametrize("head", [False, True])
def test_replays_give_what_the_network_gives(head: bool) -> None:
    pair = Pair(head)
    for seed in range(8):
        pair.check(seed, "trees" if seed % 3 else "chains")
    assert pair.pool.captures == 2  # masked and causal
    assert pair.pool.replays == 8 and not pair.pool.eager_passes


def test_a_graphed_network_is_the_network() -> None:
    decoder = tiny_decoder()
    pool = GraphPool(TapeCapturer(), 1)
    graphed = with_graphs(decoder, pool)
    head = with_graphs(tiny_head(decoder), pool)
    assert isinstance(graphed, GraphedDecoder) and isinstance(head, GraphedHead)
    assert graphed.config is decoder.config and graphed.embedding is decoder.embedding
    hidden = torch.randn(2, 32, dtype=torch.float64)
    assert torch.equal(graphed.logits(hidden), decoder.logits(hidden))
    assert graphed.weight_bytes() == decoder.weight_bytes()
    assert graphed.token_tiers == GraphTiers().tokens
    cache = graphed.new_cache(3, 8)
    assert cache.tables.tolist() == [[0], [1], [2]] and cache.keys.shape[1] == 4
    assert graphed.new_cache(3, 8).keys.shape[1] == 3  # another one is the decoder's own


STATIC = ("tokens", "positions", "states", "requests", "rows", "kv_indices", "mask", "mask_indptr")


@pytest.mark.parametrize("name", STATIC)
def test_a_stale_array_is_noticed(name: str) -> None:
    """Whatever a capture does not see again changes what comes out, or is refused."""
    pair = Pair(head=name == "states")
    pair.check(1)
    passes = pair.graphed.graphs.passes
    assert isinstance(passes, PassGraphs)
    held = passes if hasattr(passes, name) else passes.paged
    stale = getattr(held, name)
    assert isinstance(stale, StaticArray)
    with (
        patch.object(stale, "put", lambda values: stale.there[: len(values)]),
        pytest.raises((AssertionError, ValueError)),
    ):
        for seed in (2, 3):
            pair.check(seed)


@pytest.mark.parametrize("index", range(4), ids=["qo", "kv", "indices", "last_page_len"])
def test_an_array_that_planning_leaves_is_noticed(index: int) -> None:
    keep = BatchPrefillWithPagedKVCacheWrapper._keep

    def forget(self: Any, indices: tuple[Tensor, ...], mask: Any) -> None:
        if self.use_cuda_graph and index != 2:  # page numbers are in place before
            before = self._buffers[index].clone()
            keep(self, indices, mask)
            self._buffers[index].copy_(before)
        elif self.use_cuda_graph:
            keep(self, (*indices[:2], indices[2] * 0, indices[3]), mask)
        else:
            keep(self, indices, mask)

    pair = Pair()
    pair.check(1)
    with (
        patch.object(BatchPrefillWithPagedKVCacheWrapper, "_keep", forget),
        pytest.raises((AssertionError, ValueError)),
    ):
        for seed in (2, 3):
            pair.check(seed)


def memory_of(*things: Any) -> set[int]:
    """Where all tensors that hang on these objects stand."""
    found: set[int] = set()
    seen: set[int] = set()
    todo = list(things)
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, Tensor):
            found.add(thing.untyped_storage().data_ptr())
        elif isinstance(thing, dict):
            todo += thing.values()
        elif isinstance(thing, list | tuple):
            todo += thing
        elif type(thing).__module__.startswith("models."):
            todo += getattr(thing, "__dict__", {}).values()
    return found


@pytest.mark.parametrize("head", [False, True])
def test_a_replay_touches_weights_cache_and_static_arrays_alone(head: bool) -> None:
    pair = Pair(head)
    for seed, kind in enumerate(("trees", "chains")):
        pair.run(seed, kind)
    passes = pair.graphed.graphs.passes
    assert passes is not None
    arrays = [vars(passes), vars(passes.paged)]
    static = [a for names in arrays for a in names.values() if isinstance(a, StaticArray)]
    allowed = memory_of(pair.plain, pair.caches[1], static)
    assert len(pair.capturer.tapes) == 2
    for tape in pair.capturer.tapes:
        sources = {tensor.untyped_storage().data_ptr() for tensor in tape.sources()}
        assert sources and sources <= allowed


def test_work_that_keeps_the_callers_tensors_is_noticed() -> None:
    pair = Pair()
    run = pair.graphed.run

    def with_own_tokens(batch: TokenBatch, *args: Any) -> Any:
        own = torch.arange(len(batch.tokens))
        return run(batch._replace(tokens=foreign[: len(own)]), *args)

    foreign = torch.arange(64)
    with patch.object(pair.graphed, "run", with_own_tokens), pytest.raises(AssertionError):
        pair.check(1)
    (tape,) = pair.capturer.tapes
    at = {tensor.untyped_storage().data_ptr() for tensor in tape.sources()}
    assert foreign.untyped_storage().data_ptr() in at


@pytest.mark.parametrize(
    "wait",
    [lambda x: x.sum().item(), lambda x: bool(x.any()), lambda x: x[x > 0]],
    ids=["item", "bool", "index"],
)
def test_work_that_waits_cannot_be_captured(wait: Callable[[Tensor], Any]) -> None:
    ones = torch.ones(3)

    def work() -> tuple[Tensor]:
        wait(ones)
        return (ones + 1,)

    with pytest.raises(RuntimeError, match="waits for the device"):
        TapeCapturer().capture(work)


def test_what_comes_from_the_card_is_not_staged() -> None:
    """A network's states would else hold pinned memory for nothing."""
    with device_twin():
        array = StaticArray((4, 2), torch.float32, CARD)
        assert array.put(torch.ones(3, 2, device=CARD)).cpu().eq(1).all()
        assert array._staged is None


@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (32, 8), (64, 8), (32, 1), (8, 8)])
def test_schedules_fit_their_workspace(heads: int, kv_heads: int) -> None:
    """What `PrefillPlan` of FlashInfer 0.6.18 lays into it for a graph, on 200 multiprocessors."""
    tiers = GraphTiers()
    for requests in tiers.requests:
        batch = requests + 1
        for tokens in (t for t in tiers.tokens if t >= requests):
            tiles = -(-tokens * (heads // kv_heads) // 16) + batch - 1  # the smallest tile
            blocks = max(2 * 200 // kv_heads, tiles)
            arrays = 3 * [4 * blocks] + [4 * (batch + 1), 4, 4, 4 * (tokens + 1), blocks]
            assert sum(size + 16 for size in arrays) <= INT_WORKSPACE_BYTES


def test_results_of_another_graph_are_overwritten() -> None:
    """So nobody may lean on them after the pool's next pass."""
    capturer = TapeCapturer()
    ones = torch.ones(3)
    first, second = (capturer.capture(lambda: (ones + 1,)) for _ in range(2))
    first.replay()
    kept = first.outputs[0]
    assert kept is not None and kept.tolist() == [2.0] * 3
    second.replay()
    assert kept.isnan().all()


def test_what_no_graph_serves_runs_eagerly_and_is_counted() -> None:
    pair = Pair()
    served, other = pair.caches[1], pair.graphed.new_cache(PAGES, PAGE_SIZE)
    pair.check(1)
    for cache in (other, served):  # graphs stay with the first cache, whoever makes another
        cache.keys[:, :PAGES], cache.values[:, :PAGES] = pair.caches[0].keys, pair.caches[0].values
        pair.caches[1] = cache
        pair.check(2)
    pair.graphed.graphs.passes.tiers = GraphTiers((1,), (4,), 6)  # type: ignore[union-attr]
    pair.check(3)
    pair.graphed.graphs.passes.tiers = GraphTiers((4,), (24,), 1)  # type: ignore[union-attr]
    pair.check(4)
    assert pair.pool.eager_passes == {"another cache": 1, "too large": 1, "prompt": 1}
    assert pair.pool.captures == 1 and pair.pool.replays == 2


def test_nothing_is_captured_beyond_the_bound() -> None:
    pair = Pair(memory_bytes=1)
    pair.check(1)
    assert pair.pool.full and pair.pool.captures == 1
    pair.check(2, "chains")  # would be a second graph
    pair.check(3)  # has one
    assert pair.pool.captures == 1 and pair.pool.replays == 2
    assert pair.pool.eager_passes == {"memory": 1}


def test_graphs_that_are_given_up_serve_the_next_cache() -> None:
    pair = Pair()
    pair.check(1)
    assert pair.pool.used_bytes > 0
    pair.graphed.graphs.give_up()
    assert pair.pool.used_bytes == 0
    cache = pair.graphed.new_cache(PAGES, PAGE_SIZE)
    cache.keys[:, :PAGES], cache.values[:, :PAGES] = pair.caches[0].keys, pair.caches[0].values
    pair.caches[1] = cache
    pair.check(2)
    assert pair.pool.captures == pair.pool.replays == 2 and not pair.pool.eager_passes


@pytest.mark.parametrize("head", [False, True])
def test_a_graph_that_was_captured_ahead_serves_and_touched_nobodys_rows(head: bool) -> None:
    pair = Pair(head)
    _, tables = batch_of(1)
    pair.caches[1].use_tables(tables)
    before = [t[:, :PAGES].clone() for t in (pair.caches[1].keys, pair.caches[1].values)]
    for masked in (True, False, True):  # once more is nothing
        if isinstance(pair.graphed, GraphedHead):
            assert pair.graphed.prepare(Tier(4, 24), masked)
        else:
            assert pair.graphed.prepare(Tier(4, 24), masked, LAYERS)
    for cached, kept in zip((pair.caches[1].keys, pair.caches[1].values), before, strict=True):
        assert torch.equal(cached[:, :PAGES], kept)
    assert pair.pool.captures == 2 and not pair.pool.replays
    for seed in range(4):
        pair.check(seed, "trees" if seed % 2 else "chains")
    assert (pair.pool.captures, pair.pool.captured_late, pair.pool.late_s) == (2, 0, 0.0)


def test_what_is_not_captured_ahead_is_counted_and_timed() -> None:
    pair = Pair()
    pair.check(1)
    assert pair.pool.captured_late == 1 and pair.pool.late_s > 0
    pair.pool.memory_bytes = 1
    assert isinstance(pair.graphed, GraphedDecoder)
    assert not pair.graphed.prepare(Tier(4, 24), False, LAYERS)


def test_nothing_is_captured_before_there_is_a_cache() -> None:
    graphed = GraphedDecoder(tiny_decoder(), GraphPool(TapeCapturer(), 1), TIERS)
    with pytest.raises(ValueError, match="none has been made"):
        graphed.prepare(Tier(4, 24), False)


def test_another_attention_is_refused() -> None:
    graphed = GraphedDecoder(tiny_decoder(), GraphPool(TapeCapturer(), 1), TIERS)
    cache: KVCache = graphed.new_cache(PAGES, PAGE_SIZE)
    batch, tables = batch_of(0)
    cache.use_tables(tables)
    assert isinstance(graphed.attention, PlainAttention)
    with pytest.raises(UserError, match="this network has PlainAttention"):
        graphed.forward(batch, cache)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a card")
def test_a_card_captures_and_replays() -> None:
    device = torch.device("cuda")
    x, weight = torch.randn(8, 64, device=device), torch.randn(64, 64, device=device)
    captured = CudaCapturer(device).capture(lambda: ((x @ weight).relu(), None))
    for seed in range(3):
        x.copy_(torch.randn(8, 64, generator=torch.Generator().manual_seed(seed)))
        captured.replay()
        result = captured.outputs[0]
        assert result is not None and captured.n_bytes >= 0
        torch.testing.assert_close(result, (x @ weight).relu())
