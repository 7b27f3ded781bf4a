"""The live engine on a card that is not there: the text, what meets what, and who waits when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from engine.drafters.build import DraftNetwork
from engine.drafters.network import NetworkDrafter
from engine.kernels.beam import BeamState
from engine.protocol import Limits
from engine.request import Request
from engine.sampling.likeliest import likeliest
from engine.sampling.params import GREEDY, SamplingParams
from engine.serving import LiveServer
from engine.tiny import tiny_decoder, tiny_head
from models.decoder import Decoder
from models.kv_cache import KVCache
from models.upload import upload, upload_rows
from tests.device_twin import (
    CARD,
    CPU,
    CardTensor,
    DeviceTwin,
    MixedDevicesError,
    Traffic,
    device_twin,
)
from tests.random_plans import Choice, ListedPlans, RandomPlans

LIMITS = Limits(slots=3, max_depth=3, max_width=3, max_nodes=8)
VOCAB, CAPACITY, LAYERS = 10, 36, 3
SAMPLED = SamplingParams(temperature=0.8, top_p=0.9, repetition_penalty=1.1, seed=5, logprobs=True)
PROMPTS = ((1, 2, 3), (7, 7), (5, 4, 3, 2, 1, 0), (9,), (2, 8, 2, 8, 2))
DRAFTERS = ("eagle3", "model", "prompt-lookup")


@pytest.fixture(scope="module")
def twin() -> Iterator[DeviceTwin]:
    """A machine with a card, of which little is measured."""
    with (
        patch("engine.serving.PROBE_CONTEXT", 8),
        patch("engine.serving.PROBE_ITERATIONS", 3),
        device_twin() as twin,
    ):
        yield twin


@cache
def network_of(drafter: str, device: torch.device) -> DraftNetwork | None:
    """The drafter's network for `target`."""
    if drafter == "eagle3":
        return tiny_head(target(device))
    return tiny_decoder(0, VOCAB, layers=2, device=device) if drafter == "model" else None


@cache
def target(device: torch.device) -> Decoder:
    """A tiny decoder, of the same weights on all devices."""
    return tiny_decoder(0, VOCAB, layers=LAYERS, device=device)


@cache
def server_on(
    device: torch.device, drafter: str, page_size: int | None = None, pool: int | None = None
) -> LiveServer:
    """A server with a page a request, or with pages of so many tokens and a pool of so many."""
    return LiveServer(
        target(device),
        network_of(drafter, device),
        None,
        LIMITS,
        CAPACITY,
        "tiny",
        page_size=page_size,
        kv_pool_tokens=pool,
    )


# -- the twin itself -----------------------------------------------------------------------------


def test_what_meets_is_on_the_card(twin: DeviceTwin) -> None:
    there = torch.arange(6.0, device="cuda").view(2, 3)
    assert isinstance(there, CardTensor) and there.device == CARD
    assert (there + 1).device == CARD and (there * torch.tensor(2.0)).device == CARD
    for operation in (
        lambda: there + torch.ones(3),
        lambda: there[torch.tensor([0])],
        lambda: torch.cat((there, torch.ones(1, 3))),
        lambda: there.index_put_((torch.tensor([0]),), there[:1]),
    ):
        with pytest.raises(MixedDevicesError):
            operation()
    with pytest.raises(RuntimeError, match="not supported for tensor subclasses"):
        there.numpy()
    with pytest.raises(RuntimeError, match="not supported for tensor subclasses"):
        np.asarray(there)


def test_every_answer_that_is_read_is_counted(twin: DeviceTwin) -> None:
    there = torch.ones(2, 2, device=CARD)
    reading: list[Callable[[], object]] = [
        there.cpu,
        lambda: float(there[0, 0]),
        lambda: bool(there.isfinite().all()),
        lambda: there.to("cpu", torch.float64),
        lambda: torch.zeros(2, 2).copy_(there),
        lambda: torch.equal(there, there),
        there.nonzero,
        lambda: there[there > 0],
    ]
    for read in reading:
        for inference in (False, True):
            with torch.inference_mode(inference), twin.counted() as traffic:
                read()
            assert traffic == Traffic(reads=1), read
    with twin.counted() as traffic:
        there[1, 0] = 3.0
        there += there.sum(0)
    assert traffic == Traffic()
    assert there.cpu().tolist() == [
        [5.0, 3.0],
        [7.0, 3.0],
    ]  # views and changes in place are the card's


def test_copies_to_the_card_are_counted_and_are_copies(twin: DeviceTwin) -> None:
    here = np.arange(3)
    for inference in (False, True):
        with torch.inference_mode(inference), twin.counted() as traffic:
            there = upload(torch.from_numpy(here), CARD)
            one, two = upload_rows((here, 2 * here), CARD)
        assert traffic == Traffic(uploads=2)
        here += 10
        assert there.cpu().tolist() == (here - 10).tolist()
        assert (two - one).cpu().tolist() == (here - 10).tolist()
        here -= 10
        with twin.counted() as traffic:
            torch.from_numpy(here).to(CARD)
            torch.from_numpy(here).to(CARD, non_blocking=True)  # not pinned
            there.copy_(torch.from_numpy(here))
        assert traffic == Traffic(uploads=3, blocking_uploads=3)
    assert upload(torch.from_numpy(here), CPU).data_ptr() == here.ctypes.data


# -- text ----------------------------------------------------------------------------------------


def served(
    server: LiveServer, seed: int, tokens: int = 3, sampled: bool = False
) -> tuple[list[Any], Any]:
    """Texts and log probabilities under random plans, and the engine; half may be `sampled`."""
    requests = [
        Request(
            i, 0, list(prompt), tokens + i, 0.0, sampling=SAMPLED if sampled and i % 2 else GREEDY
        )
        for i, prompt in enumerate(PROMPTS)
    ]
    engine = server.engine(requests)
    engine.serve(RandomPlans(np.random.default_rng(seed), idle=0.1))
    server.backend.pool.check()
    return [(r.output, np.round(r.logprobs, 6).tolist()) for r in requests], engine


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_episodes_give_the_cpus_text_and_trees(drafter: str, twin: DeviceTwin) -> None:
    """Greedy beside sampled, on small pages of a small pool, so that requests are preempted."""
    servers = [server_on(device, drafter, 3, 36) for device in (CPU, CARD)]
    (wanted, ours), (got, theirs) = (served(s, 3, tokens=11, sampled=True) for s in servers)
    assert got == wanted
    counters = theirs.counters
    for name in ("emitted", "drafted", "verified", "wasted", "preempted"):
        assert counters[name] == ours.counters[name], name
    assert counters["preempted"] > 0 and counters["draft_failures"] == 0
    assert counters["drafted"] > 20 and counters["emitted"] > counters["request_iterations"]


def test_bfloat16_episodes_stay_on_the_card(twin: DeviceTwin) -> None:
    decoder = tiny_decoder(0, VOCAB, "bfloat16", LAYERS, CARD)
    head = tiny_head(decoder)
    server = LiveServer(decoder, head, None, LIMITS, CAPACITY, "tiny", attention="plain")
    features = server.drafter.features
    assert features is not None and server.device == features.device == CARD
    texts, engine = served(server, 2, sampled=True)
    assert all(len(text) == 3 + i for i, (text, _) in enumerate(texts))
    assert engine.counters["drafted"] > 0 and engine.counters["draft_failures"] == 0


def test_a_slot_that_broke_is_scrubbed(twin: DeviceTwin) -> None:
    cache = tiny_decoder(device=CARD).new_cache(2, 4)
    cache.values[-1, 1, 0, 2] = float("nan")
    cache.keys[0] = 1.0
    cache.scrub(np.array([0]))
    assert cache.keys[0].cpu().eq(1).all()
    cache.scrub(np.array([1]))
    assert cache.values.cpu().isfinite().all()
    assert cache.keys[0, 0].cpu().eq(1).all() and cache.keys[0, 1].cpu().eq(0).all()


# -- who waits when ------------------------------------------------------------------------------


class Watched:
    """Counts the traffic of every call of some methods of an object, by the method's name."""

    def __init__(
        self, twin: DeviceTwin, patch: pytest.MonkeyPatch, owner: Any, *names: str
    ) -> None:
        self.calls: dict[str, list[Traffic]] = {name: [] for name in names}
        for name in names:
            method = self._watched(twin, getattr(owner, name), self.calls[name])
            patch.setattr(owner, name, method)

    @staticmethod
    def _watched(
        twin: DeviceTwin, method: Callable[..., Any], calls: list[Traffic]
    ) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with twin.counted() as traffic:
                answer = method(*args, **kwargs)
            calls.append(traffic)
            return answer

        return call


@pytest.mark.parametrize(
    ("drafter", "ahead", "pages"),
    [
        ("eagle3", True, (3, 36)),
        ("eagle3", False, (3, 36)),
        ("model", True, (3, 36)),
        ("model", False, (3, 36)),
        ("prompt-lookup", False, ()),
    ],
)
def test_a_step_waits_only_where_it_reads(
    drafter: str,
    ahead: bool,
    pages: tuple[int, ...],
    twin: DeviceTwin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = server_on(CARD, drafter, *pages)
    if isinstance(server.drafter, NetworkDrafter):
        monkeypatch.setattr(server.drafter, "ahead", ahead)
    networks = [network for network in (server.decoder, server.head) if network is not None]
    passes = [Watched(twin, monkeypatch, network, "run") for network in networks]
    steps = Watched(
        twin,
        monkeypatch,
        server.backend,
        "prefill",
        "draft_ahead",
        "draft_first",
        "draft_next",
        "verify",
        "commit",
    ).calls
    beams: list[bool] = []
    draft_next = server.backend.draft_next

    def noted(step: int, slots: Any, trees: Any, beam: BeamState, children: Any) -> None:
        beams.append(bool(beam.size.any()))
        draft_next(step, slots, trees, beam, children)

    monkeypatch.setattr(server.backend, "draft_next", noted)
    for sampling, reads in ((GREEDY, 1), (SamplingParams(temperature=1.0, seed=1), 2)):
        beams.clear()
        for calls in steps.values():
            calls.clear()
        requests = [
            Request(i, 0, list(prompt), 6, 0.0, sampling=sampling)
            for i, prompt in enumerate(PROMPTS)
        ]
        tree, chain = Choice(3, 3, 8, 24, 4, 3), Choice(3, 1, 3, 24, 4, 3)
        engine = server.engine(requests)
        engine.serve(ListedPlans([tree, chain]))
        drafts = steps["draft_first"] + steps["draft_next"]
        assert len(drafts) > 10 or (ahead and not drafts)
        assert len(steps["verify"]) > 5
        assert {call.reads for call in steps["verify"]} == {reads}
        by_network = int(drafter != "prompt-lookup")
        # All draft steps of an iteration are read at once, or else each of them.
        assert len(steps["draft_ahead"]) > 5
        assert {call.reads for call in steps["draft_ahead"]} == {int(ahead)}
        assert ahead or {call.reads for call in steps["draft_first"]} == {by_network}
        assert any(beams) != ahead
        for has_beam, call in zip(beams, steps["draft_next"], strict=True):
            assert call.reads == (by_network if has_beam else 0)
        assert {call.reads for call in steps["commit"]} == {0}
        assert max(call.uploads for call in steps["commit"]) <= 1
        # A prompt's end is read, as is what is drawn; other chunks are waited for.
        assert {call.reads for call in steps["prefill"]} <= {0, reads}
        assert all(bool(call.reads) != bool(call.waits) for call in steps["prefill"])
        assert any(call.waits for call in steps["prefill"])
        every = [call for calls in steps.values() for call in calls]
        assert not any(call.blocking_uploads for call in every)
    for watched in passes:
        assert len(watched.calls["run"]) > 10
        assert all(call == Traffic() for call in watched.calls["run"])


def test_a_host_tensor_in_a_pass_is_noticed(
    twin: DeviceTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_on(CARD, "prompt-lookup")
    monkeypatch.setattr(server.decoder, "cos", server.decoder.cos.cpu())
    with pytest.raises(MixedDevicesError):
        served(server, 0)


def test_a_wait_in_a_pass_is_noticed(twin: DeviceTwin, monkeypatch: pytest.MonkeyPatch) -> None:
    server = server_on(CARD, "prompt-lookup")
    logits = server.decoder.logits

    def nosy(hidden: torch.Tensor) -> torch.Tensor:
        assert bool(hidden.isfinite().all())
        return logits(hidden)

    monkeypatch.setattr(server.decoder, "logits", nosy)
    verify = Watched(twin, monkeypatch, server.backend, "verify").calls["verify"]
    served(server, 0)
    assert {call.reads for call in verify} == {2}


def test_changed_tables_are_sent_once(twin: DeviceTwin) -> None:
    cache = KVCache(1, 4, 1, 2, 1, torch.float64, CARD)
    tables = np.array([[0, 1], [2, -1]])
    cache.use_tables(tables)
    with twin.counted() as traffic:
        cache.send_tables()
    assert traffic == Traffic()
    tables[1] = 3, 2  # as the pool does it
    at = upload_rows((np.array([1, 1]), np.array([0, 3])), CARD)
    cache.keys[0, 3, 0, 0] = 7.0
    with twin.counted() as traffic:
        cache.move(at[0], at[1], at[1].flip(0))
        cache.send_tables()
    assert traffic == Traffic(uploads=1)
    assert cache.keys[0, 2, 0, 1].item() == 7.0  # row 3 of slot 1


def test_the_likeliest_are_found_on_the_card(twin: DeviceTwin) -> None:
    logits = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    logits[0, 3] = logits[0, 30] = 9.0  # equals
    logits[2, 7], logits[3, 1] = float("nan"), float("inf")
    wanted, fine = likeliest(logits)
    for dtype in (torch.float32, torch.float64):
        with twin.counted() as traffic:
            token, finite = likeliest(logits.to(CARD, dtype))
        assert traffic.reads == 1
        assert finite.tolist() == fine.tolist() == [True, True, False, False, True]
        assert token.device == CPU and token[fine].tolist() == wanted[fine].tolist()
