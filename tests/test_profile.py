"""A machine with known costs is profiled, and held-out points are held out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from engine.errors import UserError
from engine.profile import HardwareProfile
from engine.profile.cost_model import Curve, PassCost
from engine.profile.live import profile_server
from engine.profile.measure import Timed, measure, run_episode
from engine.profile.points import chunk_points, held_out_chunks, held_out_steps, step_points
from engine.profile.schedule import ORDINARY, Episode, Shape, schedule
from engine.protocol import Limits
from engine.serving import LiveServer
from tests import profile_steps
from tests.known_costs import small_server

SMALL = Limits(slots=3, max_depth=4, max_width=4, max_nodes=16)


@pytest.fixture(scope="module")
def profile() -> HardwareProfile:
    """The imaginary machine's, without noise."""
    return profile_steps.profile_of(profile_steps.timed(profile_steps.episodes()))


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """Very small networks, on one thread."""
    with profile_steps.one_thread():
        yield small_server(SMALL)


# -- what is measured ----------------------------------------------------------------------------


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(("limits", "context"), [(Limits(), 959), (SMALL, 111), (Limits(1), 40)])
def test_the_schedule_keeps_within_the_limits(limits: Limits, context: int, quick: bool) -> None:
    episodes = schedule(limits, context, quick, np.random.default_rng(0))
    assert len(episodes) > 4
    for episode in episodes:
        assert 1 <= episode.requests <= limits.slots
        assert episode.prompt_tokens >= 1
        assert episode.prompt_tokens + episode.output_tokens <= context
        for shape in episode.shapes:
            assert shape.depth <= limits.max_depth and shape.nodes <= limits.max_nodes
            drafted = shape.width + (shape.depth - 1) * shape.width**2 if shape.depth else 0
            assert shape.nodes <= drafted  # else fewer nodes than planned would be verified


def test_prompts_are_read_whole_and_in_chunks() -> None:
    for quick in (True, False):
        alone = [e for e in profile_steps.episodes(quick) if e.shapes == (ORDINARY, (1, 1, 1))]
        chunks = {e.chunk_tokens for e in alone}
        assert 0 in chunks and 64 in chunks and len(chunks) >= 4
        assert all(2 * e.chunk_tokens <= e.prompt_tokens for e in alone)


def test_an_episode_times_what_it_planned(server: LiveServer) -> None:
    shapes = (Shape(2, 2, 3), ORDINARY, ORDINARY, Shape(3, 2, 5), Shape(1, 1, 1))
    steps, chunks = run_episode(server, 7, Episode(2, 10, shapes))
    assert [step.tokens for step in steps] == [8, 2, 2, 12, 4]
    assert steps[0].first_rows == 20  # the prompts
    assert [step.first_rows for step in steps[1:3]] == [0, 0]
    # The catch-up of both ordinary steps and of the first tree; every context grew by so much.
    assert steps[3].first_rows == steps[3].kv_tokens - steps[0].kv_tokens >= 6
    assert [step.beam_rows for step in steps] == [4, 2, 2, 4, 2]
    assert all(step.verify_s > 0 and step.host_s > 0 for step in steps)
    assert steps[0].draft_s > 0
    # Each prompt's own time, although both are read before the same step.
    assert [chunk[:3] for chunk in chunks] == [(10, 0, True)] * 2
    assert all(chunk.seconds > 0 for chunk in chunks)


def test_chunks_of_a_prompt_are_timed_apart(server: LiveServer) -> None:
    _, chunks = run_episode(server, 3, Episode(1, 10, (ORDINARY,), chunk_tokens=4))
    assert [chunk[:3] for chunk in chunks] == [(4, 0, False), (4, 4, False), (2, 8, True)]


def test_rounds_repeat_the_same_points_in_turns(server: LiveServer) -> None:
    episodes = [Episode(1, 8, (ORDINARY, Shape(2, 1, 2))), Episode(2, 6, (ORDINARY,))]
    told: list[float] = []
    timed = measure(server, episodes, rounds=3, budget_s=1e9, progress=told.append)
    assert [step.episode for step in timed.steps] == [0, 0, 1, 1, 0, 0, 0, 0, 1]
    points = step_points(timed.steps)
    assert sorted(len(repeats) for repeats in points.repeats) == [3, 3, 3]
    prompts = chunk_points(timed.chunks)
    counts = {repeats[0].tokens: len(repeats) for repeats in prompts.repeats}
    assert counts == {8: 3, 6: 6}  # the second episode has two requests
    assert told[-1] == 1.0 and told == sorted(told)


def test_a_spent_budget_ends_the_rounds_after_the_third(server: LiveServer) -> None:
    timed = measure(server, [Episode(1, 4, (ORDINARY,))], rounds=50, budget_s=0.0)
    assert len(timed.steps) == len(timed.chunks) == 3


def test_medians_and_noise_by_hand() -> None:
    base = profile_steps.timed([Episode(1, 8, (ORDINARY,))], repeats=1).steps[0]
    times = (0.010, 0.012, 0.030)
    points = step_points([base._replace(verify_s=s, host_s=0.0) for s in times])
    assert points.seconds("verify_s").tolist() == [0.012]
    assert points.seconds("verify_s", "host_s").tolist() == [0.012]
    assert sorted(points.noise("verify_s")) == pytest.approx([0.0, 1 / 6, 1.5])
    error = 1.4826 * 1.2533 / 6 / np.sqrt(3)
    assert points.standard_error("verify_s") == pytest.approx([error])
    once = base._replace(place=1)
    assert step_points([once]).noise("verify_s").size == 0
    both = step_points([*(base._replace(verify_s=s) for s in times), once])
    # Of a point timed once nothing is known: it is taken to be no better than the worst.
    assert both.standard_error("verify_s") == pytest.approx([error, error])
    assert step_points([once]).standard_error("verify_s").tolist() == [0.0]


# -- fit and held-out error ----------------------------------------------------------------------


def test_known_costs_are_found(profile: HardwareProfile) -> None:
    for name in ("verify", "draft", "prefill", "step"):
        report = profile.fits[name]
        assert report.held_out > 0
        assert report.error_median < 0.02 and report.error_p95 < 0.05, name
        assert report.noise_p95 == pytest.approx(0.0, abs=1e-12)
    assert profile.fits["draft"].error_p95 < 0.01 and profile.fits["prefill"].error_p95 < 0.01
    for tokens in (1, 8, 24, 40, 100, 300):
        for kv in (50, 2000):
            truth = profile_steps.verify_s(tokens, kv)
            assert profile.verify_s(tokens, kv) == pytest.approx(truth, rel=0.03), (tokens, kv)
    rows, context = [4, 8, 8, 8], 100
    truth = profile_steps.draft_s(4, 8, 3, context)
    assert profile.draft_s(rows, kv_tokens=context) == pytest.approx(truth, rel=0.02)
    for chunk in ((100, 0, True), (64, 512, False), (20, 300, True)):
        truth = profile_steps.prefill_s(*chunk)
        assert profile.prefill_s(*chunk) == pytest.approx(truth, rel=0.02), chunk
    # What stands before a chunk is part of its price.
    assert profile.prefill_s(64, 800) > 1.5 * profile.prefill_s(64, 0)


def test_what_is_held_out_is_never_seen() -> None:
    made = profile_steps.timed(profile_steps.episodes(quick=True), noise=0.02)
    honest = profile_steps.profile_of(made)
    generator = np.random.default_rng(0)
    points, prompts = step_points(made.steps), chunk_points(made.chunks)
    steps_out = held_out_steps(points, generator)
    chunks_out = held_out_chunks(prompts, generator)
    hidden = {
        (repeats[0].episode, repeats[0].place)
        for repeats, out in zip(points.repeats, steps_out, strict=True)
        if out
    }
    hidden_chunks = {
        repeats[0][:3] for repeats, out in zip(prompts.repeats, chunks_out, strict=True) if out
    }
    assert 0.1 < steps_out.mean() < 0.5 and 0.1 < chunks_out.mean() < 0.5

    def changed(hide: bool) -> HardwareProfile:
        """The profile with the times of what was held out, or of the rest, made thrice as long."""
        steps = [
            step._replace(verify_s=3 * step.verify_s, draft_s=3 * step.draft_s, host_s=3.0)
            if ((step.episode, step.place) in hidden) is hide
            else step
            for step in made.steps
        ]
        chunks = [
            chunk._replace(seconds=3 * chunk.seconds)
            if (chunk[:3] in hidden_chunks) is hide
            else chunk
            for chunk in made.chunks
        ]
        return profile_steps.profile_of(Timed(steps, chunks))

    # What was fitted is the same to the last bit, and the errors tell of the change.
    spoilt = changed(hide=True)
    for name in ("verify", "draft_first", "draft_next", "prefill", "host"):
        assert getattr(spoilt, name) == getattr(honest, name)
    for name in ("verify", "draft", "prefill"):
        assert honest.fits[name].error_median < 0.1
        assert spoilt.fits[name].error_median == pytest.approx(2 / 3, abs=0.05), name
    # Negative control: what was not held out does move the fit.
    seen = changed(hide=False)
    for name in ("verify", "draft_first", "prefill", "host"):
        assert getattr(seen, name) != getattr(honest, name)


def test_disturbed_repeats_and_points_do_not_move_the_fit() -> None:
    made = profile_steps.timed(profile_steps.episodes(), noise=0.02, repeats=5)
    rng = np.random.default_rng(3)
    # While somebody else computes, a tenth of all times are taken, and some points in all repeats.
    places = sorted({(step.episode, step.place) for step in made.steps})
    busy = {places[i] for i in rng.permutation(len(places))[: len(places) // 20]}
    steps = [
        step._replace(draft_s=5 * step.draft_s, verify_s=3 * step.verify_s)
        if (step.episode, step.place) in busy or rng.random() < 0.1
        else step
        for step in made.steps
    ]
    profile = profile_steps.profile_of(Timed(steps, made.chunks))
    tokens = np.array([1, 4, 16, 64, 200])
    truth = np.array([profile_steps.verify_s(n, 500) for n in tokens])
    assert np.abs(profile.verify_s(tokens, 500) / truth - 1).max() < 0.06
    drafted = profile.draft_s([2, 4, 4, 4], kv_tokens=200)
    assert drafted == pytest.approx(profile_steps.draft_s(2, 4, 3, 200), rel=0.1)


def test_noise_stands_beside_the_error() -> None:
    made = profile_steps.timed(profile_steps.episodes(quick=True), noise=0.05, repeats=5)
    report = profile_steps.profile_of(made).fits["verify"]
    assert 0.02 < report.noise_median < 0.06
    assert report.error_median < 0.05


def test_too_few_points_are_told() -> None:
    few = profile_steps.timed([Episode(1, 8, (ORDINARY, Shape(2, 1, 2)))])
    with pytest.raises(UserError, match="too few to check"):
        profile_steps.profile_of(few)


def test_a_live_server_is_profiled(server: LiveServer) -> None:
    told: list[float] = []
    profile = profile_server(server, True, 3, 0.0, 0, told.append)
    assert profile.identity == server.identity
    assert all(report.held_out > 0 for report in profile.fits.values())
    assert profile.verify_s(1, 20) > 0
    assert profile.memory.kv_bytes_per_token == 2 * 2 * 2 * 8 * 8
    assert not profile.power.is_measured or profile.power.watts[0] > 0
    assert told


# -- predictions ---------------------------------------------------------------------------------


def made(profile: HardwareProfile, **costs: object) -> HardwareProfile:
    """The profile with costs that can be worked by hand."""
    return dataclasses.replace(profile, **costs)  # type: ignore[arg-type]


def test_the_node_budget_by_hand(profile: HardwareProfile) -> None:
    cost = PassCost(Curve(0.010, (0.0,), (0.001,)), kv_token_s=1e-5)
    flat = made(profile, verify=cost, most_tokens=64, context_tokens=100.0)
    # One token: 10 + 1 + 1 ms. Twice that leaves 24 - 10 - 1 = 13 tokens.
    assert flat.node_budget(2.0) == 13
    assert flat.node_budget(1.0) == 1
    assert flat.node_budget(100.0) == 64  # never more than was measured
    # Four requests read four contexts: 24 - 10 - 4.
    assert flat.node_budget(2.0, requests=4) == 10
    assert flat.node_budget(1.0, requests=8) == 0
    assert flat.node_budget(2.0, kv_tokens=0) == 12
    with pytest.raises(UserError, match="above 0"):
        flat.node_budget(0.0)


def test_a_plan_is_priced_by_hand(profile: HardwareProfile) -> None:
    by_hand = made(
        profile,
        verify=PassCost(Curve(1.0, (0.0,), (0.1,))),
        draft_first=PassCost(Curve(0.5, (0.0,), (0.01,))),
        draft_next=PassCost(Curve(0.2, (0.0,), (0.001,))),
        host=PassCost(Curve(0.05)),
        prefill=PassCost(Curve(0.3, (0.0,), (0.002,)), attended_s=1e-5, request_s=0.1),
    )
    # An ordinary request, a chain of three and a tree of which 2 + 4 candidates can be kept.
    step = ([0, 3, 2], [1, 1, 2], [0, 3, 10], [50, 60, 70])
    verified = 3 + 3 + 6
    rows = [2, 1 + 2, 1]
    draft_s = 0.5 + 0.01 * rows[0] + 2 * 0.2 + 0.001 * (rows[1] + rows[2])
    assert by_hand.draft_s(rows) == pytest.approx(draft_s)
    expected = 1.0 + 0.1 * verified + draft_s + 0.05
    assert by_hand.step_s(*step) == pytest.approx(expected)
    assert by_hand.step_s(*step, node_budget=5) == pytest.approx(expected - 0.4)
    assert by_hand.step_s(*step, prefill_tokens=10) == pytest.approx(expected + 0.42)
    assert by_hand.prefill_s(10, 200, False) == pytest.approx(0.32 + 1e-5 * 10 * 200)
    assert by_hand.prefill_s([0, 10], 0, [True, False]) == pytest.approx([0.0, 0.32])
    later = by_hand.step_s(*step, catch_up_tokens=[9, 4, 1])
    assert later == pytest.approx(expected + 0.03)
    assert by_hand.step_s([0], [1], [0], [50]) == pytest.approx(1.1 + 0.05)
    assert by_hand.draft_s([]) == 0.0 and by_hand.prefill_s(0) == 0.0


def test_more_work_never_takes_less_time(profile: HardwareProfile) -> None:
    tokens = np.arange(1, 500)
    assert (np.diff(profile.verify_s(tokens, 300)) >= 0).all()
    assert (np.diff(profile.verify_s(32, np.arange(0, 9000, 50), 4)) >= 0).all()
    assert (np.diff(profile.prefill_s(tokens)) >= 0).all()
    assert (np.diff(profile.prefill_s(64, tokens)) >= 0).all()
    assert profile.watts(0) == profile.power.watts[0]
