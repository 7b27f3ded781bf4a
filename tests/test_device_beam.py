"""Beams that stay on the device: the nodes that `grow` chooses, and one read for all draft steps.

Where the two ways to draft are compared, both run on the twin of a card (`tests.device_twin`): the
same search for the best children, so that not even rounding may differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from engine.backends.forced import Forced
from engine.drafters.beam_on_device import BeamThere, grow_there
from engine.drafters.committed_rows import CommittedRows
from engine.drafters.network import NetworkDrafter
from engine.drafters.steered import Steered
from engine.kernels.beam import BeamState, grow, new_beam
from engine.known_texts import KnownTexts
from engine.protocol import Bools, Candidates, Limits, Plan, View
from engine.request import Request
from engine.serving import LiveServer
from engine.state import TreeState, new_trees
from engine.tiny import tiny_decoder, tiny_head
from models.kv_cache import TokenBatch
from models.paged_batch import lay_out_pages, pack_mask
from models.upload import upload
from tests.device_twin import CARD, DeviceTwin, device_twin
from tests.random_paged import Sizes, draw_batch, sizes
from tests.random_paged import draw_paged as draw_pages
from tests.random_plans import Choice, ListedPlans, RandomMasks, RandomPlans
from tests.random_trees import Case, cases, random_flags

CPU = torch.device("cpu")
LIMITS = Limits(slots=3, max_depth=4, max_width=3, max_nodes=8)
VOCAB, CAPACITY = 12, 40
NETWORKS = ("eagle3", "model")
CHANCES = (
    np.nan,
    0.0,
    1e-200,
    0.1,
    0.3,
    0.3,
    0.6,
    1.0,
)  # ties, short children, paths that round to 0


# -- the beam ------------------------------------------------------------------------------------


def check_growth(case: Case) -> None:
    """Beams by both, step after step, from the same children; some slots stop on the way."""
    limits, rng = case.limits, case.rng
    trees, beam = new_trees(1, limits), new_beam(1, limits)
    width = rng.integers(1, limits.max_width + 1, (1, limits.slots))
    rows, committed = CommittedRows(limits, 20), rng.integers(1, 20, limits.slots)
    alive = np.ones((1, limits.slots), np.bool_)
    there: BeamThere | None = None
    parents = 1
    for step in range(1, limits.max_depth + 1):
        alive &= random_flags(case)
        shape = (1, limits.slots, limits.max_width, limits.max_width)
        tokens = rng.integers(0, 9, shape)
        chances = -np.sort(-rng.choice(CHANCES, shape))  # NaN is sorted to the end
        grow(step, alive, width, tokens, chances, trees, beam)
        wide = torch.from_numpy(np.where(alive, width, 0)[0])
        children = (
            torch.from_numpy(tokens[0, :, :parents]),
            torch.from_numpy(chances[0, :, :parents]),
        )
        # As many places as could be needed, or as many as are.
        most = min(limits.max_width, parents * limits.max_width)
        parents = int(rng.integers(max(1, beam.size.max()), most + 1))
        there = grow_there(step, wide, parents, *children, there, limits)
        check_beam(there, trees, beam)
        # The host counts places by the widths alone: a single one is a chain's.
        is_counted = beam.size.max() > 1 or width[alive].max(initial=0) == 1
        if beam.size.any() and is_counted and step < limits.max_depth:
            wanted = rows.beam(step, committed, trees, beam)
            got, at = rows.beam_there(step, committed, beam.size[0], there, CPU)
            check_batch(got.batch, wanted.batch)
            assert at.slots.tolist() == got.slots.tolist() == wanted.slots.tolist()
            assert at.places.tolist() == got.places.tolist() == wanted.places.tolist()
            above = beam.parent_row[0][wanted.slots, wanted.places]
            assert at.parents.tolist() == above.tolist()


def check_beam(there: BeamThere, trees: TreeState, beam: BeamState) -> None:
    """The same nodes in the same places, to the last bit; dead places hold nothing."""
    live = np.arange(there.live.shape[1]) < beam.size[0][:, None]
    np.testing.assert_array_equal(there.live.numpy(), live)
    for slot, place in np.argwhere(live):
        node = beam.candidate[0, slot, place]
        assert there.token[slot, place] == trees.token[0, slot, node]
        assert there.probability[slot, place] == trees.probability[0, slot, node]
        assert there.parent_row[slot, place] == beam.parent_row[0, slot, place]
        seen = there.ancestors[slot, place].numpy()
        np.testing.assert_array_equal(seen, beam.ancestors[0, slot, place])
    dead = torch.from_numpy(~live)
    for field in (there.token, there.probability, there.parent_row):
        assert not field[dead].any()
    assert (there.ancestors[dead].sum(-1) == 1).all()  # itself alone


def check_batch(got: TokenBatch, wanted: TokenBatch) -> None:
    """The same tokens in the same rows, who see the same."""
    assert (got.first_slot, got.end_slot) == (wanted.first_slot, wanted.end_slot)
    for name in ("tokens", "positions", "slots", "rows", "offsets"):
        assert getattr(got, name).tolist() == getattr(wanted, name).tolist(), name
    at = wanted.slots - wanted.first_slot, wanted.offsets
    assert got.mask.shape == wanted.mask.shape
    assert torch.equal(got.mask[at], wanted.mask[at])


@settings(max_examples=60)
@given(cases(replicas=1))
def test_the_beam_is_grows(case: Case) -> None:
    check_growth(case)


def test_another_order_of_equals_is_noticed() -> None:
    sort = torch.sort

    def other(score: Tensor, **how: bool | int) -> tuple[Tensor, Tensor]:
        best, order = sort(score.flip(1), **how)  # type: ignore[call-overload]
        return best, score.shape[1] - 1 - order

    limits = Limits(slots=4, max_depth=3, max_width=3)
    with patch("torch.sort", other), pytest.raises(AssertionError):
        for seed in range(5):
            check_growth(Case(np.random.default_rng(seed), 1, limits))


# -- masks for FlashInfer ------------------------------------------------------------------------


@settings(max_examples=60)
@given(sizes)
def test_masks_on_the_device_are_the_hosts(size: Sizes) -> None:
    batch, cache, *_ = draw_pages(size)
    wanted = lay_out_pages(batch, cache.tables, cache.page_size)
    if wanted.mask is None:
        return  # of such a batch the host knows it
    with device_twin() as twin:
        there = batch._replace(mask=upload(batch.mask, CARD))
        with twin.counted() as traffic:
            got = lay_out_pages(there, cache.tables, cache.page_size)
            assert got.mask is not None
            packed, ends = pack_mask(got.mask, got.mask_ends(cache.page_size))
        assert not traffic.reads and not traffic.blocking_uploads
        assert got.mask.cpu().tolist() == wanted.mask.tolist()
        bits, wanted_ends = pack_mask(wanted.mask, wanted.mask_ends(cache.page_size))
        assert packed.cpu().tolist() == bits.tolist() and ends.tolist() == wanted_ends.tolist()


def test_tokens_that_are_there_stay_there() -> None:
    batch = draw_batch(Sizes("beams", 3, 9, 6, 4, 1, 1, 2, seed=0), np.random.default_rng(0))
    with device_twin() as twin:
        drafted = batch._replace(tokens=upload(batch.tokens, CARD))
        with twin.counted() as traffic:
            sent = drafted.on(CARD)
        assert traffic.reads == 0 and traffic.uploads == 1
        assert sent.tokens is drafted.tokens
        for name in ("positions", "slots", "rows", "offsets"):
            assert getattr(sent, name).cpu().tolist() == getattr(batch, name).tolist()
        assert sent.on(CARD) is sent


# -- episodes ------------------------------------------------------------------------------------


class Noting(RandomPlans):
    """Random plans; keeps what was drafted."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.default_rng(seed), idle=0.1)
        self.drafted: list[list[np.ndarray]] = []

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools | None:
        real = np.arange(candidates.parent.shape[1]) < candidates.size[:, None]
        self.drafted.append([candidates.size.copy(), *(a[real] for a in candidates[1:])])
        return None


def assert_same_drafts(one: Noting, other: Noting) -> None:
    """Sizes, parents, depths, tokens and probabilities, to the last bit."""
    assert len(one.drafted) == len(other.drafted) > 5
    for got, wanted in zip(one.drafted, other.drafted, strict=True):
        for ours, theirs in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.fixture(scope="module", autouse=True)
def little_is_measured() -> Iterator[None]:
    with (
        patch("engine.serving.PROBE_CONTEXT", 4),
        patch("engine.serving.PROBE_ITERATIONS", 3),
    ):
        yield


@pytest.fixture(scope="module")
def twin() -> Iterator[DeviceTwin]:
    with device_twin() as twin:
        yield twin


@cache
def server_on(
    device: torch.device, drafter: str, vocab: int = VOCAB, attention: str = "plain"
) -> LiveServer:
    """Few layers; in float32 on a CPU, plain attention is compiled layers."""
    dtype = "float32" if device == CPU and attention == "plain" else "float64"
    target = tiny_decoder(0, vocab, dtype, 3, device)
    model = tiny_decoder(0, vocab, dtype, 2, device)
    network = tiny_head(target) if drafter == "eagle3" else model
    return LiveServer(target, network, None, LIMITS, CAPACITY, "tiny", attention=attention)


def network_of(server: LiveServer) -> NetworkDrafter:
    assert isinstance(server.drafter, NetworkDrafter)
    return server.drafter


def texts(
    server: LiveServer, controller: RandomPlans | ListedPlans, ahead: bool
) -> list[list[int]]:
    """What is served while drafts are made in the one way or the other."""
    drafter, vocab = network_of(server), server.decoder.config.vocab_size
    rng = np.random.default_rng(1)
    requests = [Request(i, 0, rng.integers(0, vocab, 2 + i).tolist(), 9, 0.0) for i in range(3)]
    with patch.object(drafter, "ahead", ahead):
        engine = server.engine(requests)
        engine.serve(controller)
    assert engine.counters["draft_failures"] == 0 and engine.counters["drafted"] > 10
    return [request.output for request in requests]


@pytest.mark.parametrize("attention", ["plain", "interpreter"])
@pytest.mark.parametrize("drafter", NETWORKS)
def test_every_attention_gives_the_text(drafter: str, attention: str) -> None:
    server = server_on(CPU, drafter, VOCAB, attention)
    assert not network_of(server).ahead  # unless it is told to
    one_by_one, ahead = Noting(3), Noting(3)
    assert texts(server, ahead, True) == texts(server, one_by_one, False)
    for got, wanted in zip(ahead.drafted, one_by_one.drafted, strict=True):
        np.testing.assert_array_equal(got[0], wanted[0])
        np.testing.assert_array_equal(got[3], wanted[3])  # the tokens; chances are rounded


# A vocabulary of 2 is less than the beam is wide: the first beam is short, later ones are not.
@pytest.mark.parametrize(
    ("drafter", "vocab"), [*((name, VOCAB) for name in NETWORKS), ("model", 2)]
)
def test_episodes_draft_the_same_trees_to_the_last_bit(
    drafter: str, vocab: int, twin: DeviceTwin
) -> None:
    server = server_on(CARD, drafter, vocab)
    assert network_of(server).ahead  # by itself
    one_by_one, ahead = Noting(2), Noting(2)
    assert texts(server, ahead, True) == texts(server, one_by_one, False)
    assert_same_drafts(ahead, one_by_one)


def test_a_controller_that_extends_is_asked_in_every_step(twin: DeviceTwin) -> None:
    server = server_on(CARD, "eagle3")
    with patch.object(server.backend, "draft_ahead", side_effect=AssertionError):
        texts(server, RandomMasks(np.random.default_rng(0)), True)
        with pytest.raises(AssertionError):
            texts(server, RandomPlans(np.random.default_rng(0)), True)


def test_steered_drafts_are_the_same_too(twin: DeviceTwin) -> None:
    """Rates in between, and ranks beyond the beam's width and the vocabulary's last token."""
    server = server_on(CARD, "eagle3")
    rng = np.random.default_rng(5)
    requests = [Request(i, 0, [i, 3], 12, 0.0) for i in range(4)]
    known = KnownTexts({i: [i, 3, *rng.integers(0, VOCAB, 9 + i).tolist()] for i in range(3)})
    chances = [[0.5, 0.2, 0.1], [0.6, 0.2]]

    def run(ahead: bool) -> tuple[list[list[int]], Noting]:
        served = [Request(r.id, 0, r.prompt, r.max_tokens, 0.0) for r in requests]
        steering, controller = np.random.default_rng(2), Noting(4)
        steered = Steered(server.drafter, chances, VOCAB, LIMITS, steering, known)
        with (
            patch.object(server.guard, "drafter", steered),
            patch.object(network_of(server), "ahead", ahead),
        ):
            engine = server.engine(served, backend=Forced(server.backend, known))
            engine.serve(controller)
        assert not engine.counters["draft_failures"]
        assert engine.counters["emitted"] > 1.15 * engine.counters["request_iterations"]
        return [request.output for request in served], controller

    (got, ours), (wanted, theirs) = run(True), run(False)
    assert got == wanted
    assert_same_drafts(ours, theirs)


@pytest.mark.parametrize("call", [0, 2])
def test_logits_that_are_not_finite_cost_one_iterations_drafts(
    call: int, twin: DeviceTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the roots' pass or a later one: noticed at the end, and the next draft is as ever."""
    server = server_on(CARD, "eagle3")
    drafter, head = network_of(server), server.drafter.head  # type: ignore[attr-defined]
    choice = ListedPlans([Choice(3, 2, 6, 24, 64, 3)])
    wanted = texts(server, choice, True)
    monkeypatch.setattr(server.guard, "failures", 0)
    logits, calls, done = head.logits, 0, []

    def broken(states: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        found = logits(states)
        return found * float("nan") if calls == call + 1 else found

    monkeypatch.setattr(head, "logits", broken)
    rng = np.random.default_rng(1)
    requests = [Request(i, 0, rng.integers(0, VOCAB, 2 + i).tolist(), 9, 0.0) for i in range(3)]
    engine, drafted = server.engine(requests), []
    while (view := engine.next_decision()) is not None:
        drafted.append(int(engine.run_iteration(view, choice).drafted.sum()))
        done.append(drafter.rows.done.copy())
    assert [request.output for request in requests] == wanted
    assert server.guard.failures == engine.counters["draft_failures"] == 1
    assert drafted[0] == 0 and not done[0].any()  # nothing counts as run
    assert min(drafted[1:3]) > 0 and done[1].any()
