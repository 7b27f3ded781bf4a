"""Graphs are captured before the clock runs: after warm-up an episode asks for none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from engine import serving
from engine.graphs_ahead import Wanted, wanted_graphs
from engine.protocol import Limits
from engine.request import Request
from engine.sampling.params import GREEDY
from engine.serving import LiveServer
from engine.tiny import tiny_decoder, tiny_head
from models.flashinfer_attention import FlashInferAttention
from models.graph_interpreter import TapeCapturer
from models.graph_tiers import GraphTiers
from models.graphed import GraphedDecoder, GraphedHead, with_graphs
from models.pass_graphs import GraphPool
from policies.registry import make
from tests.ordinary_answers import ordinary_answers
from tests.random_plans import RandomMasks, RandomPlans

LIMITS = Limits(slots=3, max_depth=3, max_width=3, max_nodes=6)
TIERS = GraphTiers(requests=(1, 3), tokens=(1, 6, 28), tree_tokens=7)
CAPACITY, VOCAB = 40, 10


@contextmanager
def tape(memory_bytes: int = 2**30) -> Iterator[GraphPool]:
    """Within, servers are made with a tape in the card's place, and little is measured."""
    capturer = TapeCapturer()
    pool = GraphPool(capturer, memory_bytes)
    with (
        patch.object(serving, "card_graphs", lambda decoder: pool),
        patch.object(serving, "with_graphs", lambda network, on: with_graphs(network, on, TIERS)),
        patch.object(
            serving,
            "choose_attention",
            lambda name, dtype, device: FlashInferAttention(capturer, device, workspace_bytes=16),
        ),
        patch.object(serving, "PROBE_CONTEXT", 8),
        patch.object(serving, "PROBE_ITERATIONS", 3),
    ):
        yield pool


def server(drafter: str) -> LiveServer:
    """Three layers and a drafter."""
    decoder = tiny_decoder(0, VOCAB, layers=3)
    head = tiny_head(decoder) if drafter == "eagle3" else tiny_decoder(0, VOCAB, layers=1)
    return LiveServer(decoder, head, None, LIMITS, CAPACITY, "tiny", page_size=4)


def serve_randomly(on: LiveServer, seed: int) -> int:
    """Requests with prompts of all lengths under random plans; emitted tokens."""
    rng = np.random.default_rng(seed)
    requests = [
        Request(i, 0, rng.integers(0, VOCAB, 1 + int(rng.integers(18))).tolist(), 10, 0.0)
        for i in range(4)
    ]
    kind = RandomMasks if seed % 2 else RandomPlans
    engine = on.engine(requests)
    engine.serve(kind(rng))
    return engine.counters["emitted"]


@pytest.fixture(scope="module")
def eagle3() -> LiveServer:
    """With all its graphs."""
    with tape():
        return server("eagle3")


def test_a_server_takes_graphs_where_a_card_would_give_them(eagle3: LiveServer) -> None:
    """On the CPU there are none; with the tape in the card's place, all its networks use it."""
    assert LiveServer(tiny_decoder(0, VOCAB), None, None, LIMITS, CAPACITY, "tiny").graphs is None
    plain = replace(eagle3.identity, graphs=False)
    assert eagle3.identity.graphs and eagle3.identity.digest != plain.digest
    assert eagle3.identity.differences(plain) == ["graphs True, here False"]
    assert isinstance(eagle3.decoder, GraphedDecoder) and isinstance(eagle3.head, GraphedHead)
    pool = eagle3.graphs
    assert pool is not None
    before = pool.replays
    requests = [Request(i, 0, [i + 1, i + 2], 6, 0.0) for i in range(3)]
    eagle3.engine(requests).serve(make("tiered:eagle3(3,2,4)"))
    assert pool.replays > before and not pool.eager_passes["another cache"]
    asked = [(tuple(request.prompt), GREEDY) for request in requests]
    answers = ordinary_answers(tiny_decoder(0, VOCAB, layers=3), asked, 6)
    assert [request.output for request in requests] == list(answers.values())


@pytest.mark.parametrize("drafter", ["eagle3", "model"])
def test_after_warm_up_an_episode_captures_nothing(
    drafter: str, request: pytest.FixtureRequest
) -> None:
    if drafter == "eagle3":
        on = request.getfixturevalue("eagle3")
    else:
        with tape():
            on = server(drafter)
    pool = on.graphs
    captures, before = pool.captures, pool.replays
    assert captures > 12 and pool.captured_late == 0
    assert sum(serve_randomly(on, seed) for seed in range(3)) > 60
    assert pool.replays - before > 60
    assert (pool.captures, pool.captured_late, pool.late_s) == (captures, 0, 0.0)
    assert {reason for reason, count in pool.eager_passes.items() if count} == {"prompt"}


def test_a_late_capture_is_counted_and_not_on_the_engines_clock() -> None:
    with tape() as pool, patch.object(serving, "capture_ahead", lambda *_: 0):
        on = server("eagle3")
    assert pool.captured_late == pool.captures > 0 and pool.late_s > 0
    engine = on.engine([Request(0, 0, [1, 2, 3], 4, 0.0)])
    begun, pool.late_s = engine.read(), pool.late_s + 1000.0
    assert -1000.0 <= engine.spend(begun) < -500.0


def test_a_full_pool_holds_what_is_wanted_most() -> None:
    with tape(memory_bytes=1) as pool:
        on = server("eagle3")
    assert pool.captures == 1
    passes = on.decoder.graphs.passes  # type: ignore[attr-defined]
    assert [(tier, masked) for tier, masked, _ in passes.captured] == [((1, 1), False)]
    serve_randomly(on, 0)
    assert pool.captured_late == 0 and pool.eager_passes["memory"] > 0


def test_ordinary_decoding_comes_first_then_trees_then_drafts() -> None:
    pool = GraphPool(TapeCapturer(), 1)
    decoder = with_graphs(tiny_decoder(), pool, TIERS)
    head = with_graphs(tiny_head(tiny_decoder()), pool, TIERS)
    assert isinstance(decoder, GraphedDecoder) and isinstance(head, GraphedHead)
    order = list(wanted_graphs(decoder, head, LIMITS, CAPACITY))
    assert len(order) == len(set(order))
    plain, trees = TIERS.reach(3, 1), TIERS.reach(3, 7, 2)
    first = [Wanted(decoder, tier, False) for tier in plain]
    assert order[: len(plain)] == first
    assert order[len(plain) :][: len(trees)] == [Wanted(decoder, tier, True) for tier in trees]
    networks = [wanted.network for wanted in order]
    assert networks == sorted(networks, key=lambda network: network is head)
    assert not list(wanted_graphs(tiny_decoder(), None, LIMITS, CAPACITY))
