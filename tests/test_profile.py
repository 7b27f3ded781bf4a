"""A machine with known costs is profiled, held-out points are held out, files come back whole."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.errors import UserError
from engine.profile import HardwareProfile
from engine.profile.cost_model import Curve, PassCost
from engine.profile.fallback import ProfiledController, WithoutProfile, with_profile
from engine.profile.live import profile_server
from engine.profile.machine import Machine, this_machine
from engine.profile.measure import measure, run_episode
from engine.profile.points import held_out, points_of
from engine.profile.schedule import ORDINARY, Episode, Shape, schedule
from engine.profile.store import profile_path
from engine.protocol import Controller, Limits, Plan, View, uniform_plan
from engine.request import Request
from engine.serving import LiveServer
from engine.tiny import tiny_server
from tests import profile_steps

SMALL = Limits(slots=3, max_depth=4, max_width=4, max_nodes=16)
ELSEWHERE = Machine("another processor", 64, 512, "Linux aarch64")


@pytest.fixture(scope="module")
def profile() -> HardwareProfile:
    """The imaginary machine's, without noise."""
    return profile_steps.profile_of(profile_steps.steps(profile_steps.episodes()))


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """The tiny networks, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_server(0, 16, limits=SMALL, capacity_tokens=128)
    torch.set_num_threads(threads)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test alone."""
    monkeypatch.setenv("DRAFTGYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


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


def test_an_episode_times_what_it_planned(server: LiveServer) -> None:
    shapes = (Shape(2, 2, 3), ORDINARY, ORDINARY, Shape(3, 2, 5), Shape(1, 1, 1))
    steps = run_episode(server, 7, Episode(2, 10, shapes))
    assert [step.tokens for step in steps] == [8, 2, 2, 12, 4]
    assert steps[0].first_rows == 20  # the prompts
    assert [step.first_rows for step in steps[1:3]] == [0, 0]
    # The catch-up of both ordinary steps and of the first tree; every context grew by so much.
    assert steps[3].first_rows == steps[3].kv_tokens - steps[0].kv_tokens >= 6
    assert [step.beam_rows for step in steps] == [4, 2, 2, 4, 2]
    assert all(step.verify_s > 0 and step.host_s > 0 for step in steps)
    assert steps[0].draft_s > 0 and steps[0].prefill_s > 0
    assert [step.prompt_tokens for step in steps] == [0] * 5  # two prompts: no time of one


def test_rounds_repeat_the_same_points_in_turns(server: LiveServer) -> None:
    episodes = [Episode(1, 8, (ORDINARY, Shape(2, 1, 2))), Episode(2, 6, (ORDINARY,))]
    told: list[float] = []
    steps = measure(server, episodes, rounds=3, budget_s=1e9, progress=told.append)
    assert [step.episode for step in steps] == [0, 0, 1, 1, 0, 0, 0, 0, 1]
    points = points_of(steps)
    assert sorted(len(repeats) for repeats in points.repeats) == [3, 3, 3]
    assert told[-1] == 1.0 and told == sorted(told)


def test_a_spent_budget_ends_the_rounds_after_the_second(server: LiveServer) -> None:
    steps = measure(server, [Episode(1, 4, (ORDINARY,))], rounds=50, budget_s=0.0)
    assert len(steps) == 2


def test_medians_and_noise_by_hand() -> None:
    base = profile_steps.steps([Episode(1, 8, (ORDINARY,))], repeats=1)[0]
    timed = [base._replace(verify_s=s) for s in (0.010, 0.012, 0.030)]
    points = points_of(timed)
    assert points.verify_s.tolist() == [0.012]
    noise = points.noise(("verify_s",), np.array([True]))
    assert sorted(noise) == pytest.approx([0.0, 1 / 6, 1.5])
    assert points_of([base]).noise(("verify_s",), np.array([True])).size == 0


# -- fit and held-out error ----------------------------------------------------------------------


def test_known_costs_are_found(profile: HardwareProfile) -> None:
    for name in ("verify", "draft", "prefill", "step"):
        report = profile.fits[name]
        assert report.held_out > 0
        assert report.error_median < 0.02 and report.error_p95 < 0.05, name
        assert report.noise_p95 == pytest.approx(0.0, abs=1e-12)
    for tokens in (1, 8, 24, 40, 100, 300):
        for kv in (50, 2000):
            truth = profile_steps.verify_s(tokens, kv)
            assert profile.verify_s(tokens, kv) == pytest.approx(truth, rel=0.03), (tokens, kv)
    rows = [4, 8, 8, 8]
    assert profile.draft_s(rows) == pytest.approx(profile_steps.draft_s(4, 8, 3), rel=0.05)
    assert profile.prefill_s(100) == pytest.approx(0.015 + 0.08, rel=0.03)


def test_the_held_out_points_are_never_seen() -> None:
    timed = profile_steps.steps(profile_steps.episodes(quick=True), noise=0.02)
    honest = profile_steps.profile_of(timed)
    points = points_of(timed)
    out = held_out(points, np.random.default_rng(0))
    hidden = {
        (step.episode, step.place) for step, left in zip(points.steps, out, strict=True) if left
    }
    assert 0.1 < len(hidden) / len(points.steps) < 0.5
    spoilt = profile_steps.profile_of(
        [
            step._replace(verify_s=3 * step.verify_s, draft_s=3 * step.draft_s, host_s=3.0)
            if (step.episode, step.place) in hidden
            else step
            for step in timed
        ]
    )
    # What was fitted is the same to the last bit, and the error tells of the change.
    for name in ("verify", "draft_first", "draft_next", "host"):
        assert getattr(spoilt, name) == getattr(honest, name)
    assert honest.fits["verify"].error_median < 0.1
    assert spoilt.fits["verify"].error_median == pytest.approx(2 / 3, abs=0.05)
    # Negative control: what was not held out does move the fit.
    seen = profile_steps.profile_of(
        [
            step if (step.episode, step.place) in hidden else step._replace(verify_s=1.0)
            for step in timed
        ]
    )
    assert seen.verify != honest.verify


def test_noise_stands_beside_the_error() -> None:
    timed = profile_steps.steps(profile_steps.episodes(quick=True), noise=0.05, repeats=5)
    report = profile_steps.profile_of(timed).fits["verify"]
    assert 0.02 < report.noise_median < 0.06
    assert report.error_median < 0.05


def test_too_few_points_are_told() -> None:
    few = profile_steps.steps([Episode(1, 8, (ORDINARY, Shape(2, 1, 2)))])
    with pytest.raises(UserError, match="too few to check"):
        profile_steps.profile_of(few)


def test_a_live_server_is_profiled(server: LiveServer) -> None:
    told: list[float] = []
    profile = profile_server(server, True, 2, 0.0, 0, told.append)
    assert profile.model == "tiny" and profile.dtype == "float64" and profile.drafter == "eagle3"
    assert profile.threads == 1 and profile.machine == this_machine()
    assert all(report.held_out > 0 for report in profile.fits.values())
    assert profile.verify_s(1, 20) > 0
    assert profile.memory.kv_bytes_per_token == 2 * 8 * 2 * 8 * 8
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
        prefill=PassCost(Curve(0.3, (0.0,), (0.002,))),
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
    assert by_hand.step_s(*step, prefill_tokens=10) == pytest.approx(expected + 0.32)
    later = by_hand.step_s(*step, catch_up_tokens=[9, 4, 1])
    assert later == pytest.approx(expected + 0.03)
    assert by_hand.step_s([0], [1], [0], [50]) == pytest.approx(1.1 + 0.05)
    assert by_hand.draft_s([]) == 0.0 and by_hand.prefill_s(0) == 0.0


def test_more_work_never_takes_less_time(profile: HardwareProfile) -> None:
    tokens = np.arange(1, 500)
    assert (np.diff(profile.verify_s(tokens, 300)) >= 0).all()
    assert (np.diff(profile.verify_s(32, np.arange(0, 9000, 50), 4)) >= 0).all()
    assert (np.diff(profile.prefill_s(tokens)) >= 0).all()
    assert profile.watts(0) == profile.power.watts[0]


# -- files ---------------------------------------------------------------------------------------


def test_a_profile_comes_back_whole(profile: HardwareProfile, tmp_path: Path) -> None:
    path = profile.save(tmp_path / "deep" / "profile.json")
    assert HardwareProfile.load(path) == profile
    assert [p.name for p in path.parent.iterdir()] == ["profile.json"]  # no temporary file


def test_the_cache_keeps_one_a_model_and_dtype(profile: HardwareProfile, cache: Path) -> None:
    with pytest.raises(UserError, match="no hardware profile of imaginary"):
        HardwareProfile.load(model="imaginary")
    assert HardwareProfile.find("imaginary") is None
    path = profile.save()
    assert path.is_relative_to(cache)
    other = made(profile, dtype="bfloat16")
    other.save()
    assert HardwareProfile.load(model="imaginary", dtype="float32") == profile
    assert HardwareProfile.load(model="imaginary", dtype="bfloat16") == other
    assert HardwareProfile.find("imaginary", "float64") is None
    assert HardwareProfile.find("imaginary", drafter="model") is None
    assert HardwareProfile.find("imaginary") in (profile, other)
    here = this_machine()
    assert profile_path(here, "a/b", "x", "y") != profile_path(here, "a-b", "x", "y")


def test_another_machine_is_refused_unless_asked_for(
    profile: HardwareProfile, tmp_path: Path
) -> None:
    path = made(profile, machine=ELSEWHERE).save(tmp_path / "p.json")
    with pytest.raises(UserError, match=r"profile of another machine \(another processor, 64"):
        HardwareProfile.load(path)
    assert HardwareProfile.load(path, any_machine=True).machine == ELSEWHERE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "version 2, expected 1"),
        ({"version": None}, "version None, expected 1"),
        ({"format": "x"}, "is not a hardware profile"),
        ({"threads": "two"}, "profile.threads is 'two', expected int"),
        ({"most_tokens": True}, "profile.most_tokens is True"),
        ({"extra": 1}, "expected \\["),
        ({"power": {"tokens": [1]}}, "profile.power has"),
        ({"context_tokens": 1e999}, "profile.context_tokens is inf"),
    ],
)
def test_a_file_that_does_not_fit_is_told(
    change: dict, says: str, profile: HardwareProfile, tmp_path: Path
) -> None:
    path = profile.save(tmp_path / "p.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=says) as told:
        HardwareProfile.load(path)
    assert "python -m engine.profile" in str(told.value)


def test_a_negative_cost_in_a_file_is_told(profile: HardwareProfile, tmp_path: Path) -> None:
    path = profile.save(tmp_path / "p.json")
    raw = json.loads(path.read_text())
    raw["verify"]["curve"]["base_s"] = -1.0
    path.write_text(json.dumps(raw))
    with pytest.raises(UserError, match="is damaged: a curve's base"):
        HardwareProfile.load(path)


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_what_is_no_profile_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(UserError, match="is not a hardware profile"):
        HardwareProfile.load(tmp_path / "p.json")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none.json: no hardware profile"):
        HardwareProfile.load(tmp_path / "none.json")


def test_the_machine_is_the_same_when_asked_twice(tmp_path: Path) -> None:
    assert this_machine() == this_machine()
    assert this_machine().fingerprint == this_machine().fingerprint != ELSEWHERE.fingerprint
    assert this_machine(tmp_path / "none").processor  # where /proc does not tell


# -- the controller that cannot do without -------------------------------------------------------


class Priced(ProfiledController):
    """Speculates as deep as a budget of two steps allows."""

    name = "priced"

    def plan(self, view: View) -> Plan:
        nodes = min(3, self.profile.node_budget(2.0))
        return uniform_plan(view.limits, nodes, 1, nodes)


class Plain(Controller):
    """Needs no profile."""

    def plan(self, view: View) -> Plan:
        return uniform_plan(view.limits, 2, 1, 2)


def test_without_a_profile_decoding_is_ordinary(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="draftgym.profile"):
        controller = with_profile(Priced(), None)
        engine = server.engine([Request(0, 0, [1, 2, 3], 6, 0.0)])
        engine.serve(controller)
    assert isinstance(controller, WithoutProfile)
    assert engine.counters["drafted"] == 0
    assert controller.fallbacks == engine.counters["iterations"] == 5
    assert [r.getMessage() for r in caplog.records] == [
        "controller priced needs a hardware profile and there is none: requests are decoded "
        "without speculation; measure one with `python -m engine.profile`"
    ]


def test_with_a_profile_the_controller_decides(
    server: LiveServer, profile: HardwareProfile, caplog: pytest.LogCaptureFixture
) -> None:
    given = Priced()
    assert with_profile(given, profile) is given
    engine = server.engine([Request(0, 0, [1, 2, 3], 6, 0.0)])
    engine.serve(given)
    assert engine.counters["drafted"] > 0
    assert not caplog.records


def test_who_needs_none_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    plain = Plain()
    assert not Controller.needs_profile
    assert with_profile(plain, None) is plain
    assert not caplog.records
