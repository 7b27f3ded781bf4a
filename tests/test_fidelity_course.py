"""A whole comparison on the tiny pair: laps, drift, ranking, tiers, and what is written of them."""

import json
import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from engine.errors import UserError
from engine.profile.hardware_profile import HardwareProfile
from engine.profile.measure import Timed
from engine.protocol import NODE_TIERS
from engine.replay.server import ReplayConfig, ReplayServer
from eval.fidelity.course import Course, Machine, Report, Told, at_once, on_profile
from eval.fidelity.drawing import draw
from eval.fidelity.drift import calibrated, drifts
from eval.fidelity.figures import BARS, Line, Measured
from eval.fidelity.ranking import METRICS, Pair, ranked
from eval.fidelity.runs import Case
from eval.fidelity.scope import Scope, steady
from eval.fidelity.telling import as_json, told
from eval.fidelity.tiers import Tiers, Visit, compare, compared_tiers
from policies import registry
from tests import profile_steps, tiny_recording
from tests.test_fidelity import run


class NoRounds:
    """Stands where the machine would be timed: counts, and measures nothing."""

    def __init__(self) -> None:
        self.rounds: list[Timed] = []

    def run(self) -> None:
        self.rounds.append(Timed([], []))

    def profile(self) -> HardwareProfile:
        return tiny_recording.replay_server().profile


def asked(count: int) -> Case:
    return Case("a few", lambda: list(tiny_recording.asked(count, gap_s=0.01)), False)


# -- the course --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> Report:
    course = Course(
        controllers=[registry.make("autoregressive"), registry.make("chain(4)")],
        cases=[asked(4), at_once(asked(6), 3)],
        blocks=[asked(3), asked(4)],
        reported=frozenset({"a few"}),
    )
    often, seldom, said = NoRounds(), NoRounds(), list[str]()
    live, replay = tiny_recording.live_server(), tiny_recording.replay_server()
    found = course.run(live, replay, Machine(often, seldom), said.append)  # type: ignore[arg-type]
    # Two cases twice and two blocks, and once at the end; the profile at both ends and between.
    assert len(often.rounds) == 2 * 2 + 2 + 1 and len(seldom.rounds) == 3
    runs = [words for words in said if "lap" in words]
    assert [words.rsplit(": ")[1] for words in runs[:4]] == ["autoregressive", "chain(4)"] * 2
    return found


def test_every_case_and_controller_is_compared(report: Report) -> None:
    found = {(t.case, t.controller, t.line.figure) for t in report.lines}
    assert ("all at once", "chain(4)", "capacity") in found
    assert ("a few", "autoregressive", "mean TPOT") in found
    assert {t.case for t in report.judged} == {"all at once"}
    exact = [t.line for t in report.lines if t.line.figure == "accepted length by position"]
    assert exact and all(line.error == 0 for line in exact)


def test_pairs_are_ranked_by_every_metric(report: Report) -> None:
    assert [(p.metric, p.first, p.second) for p in report.pairs] == [
        (metric.name, "autoregressive", "chain(4)") for metric in METRICS
    ]


def test_the_tables_are_whole_and_plain_data(report: Report) -> None:
    lines = list(told(report, with_stages=True))
    assert sum(line.startswith("| a few | chain(4) |") for line in lines) > 8
    assert any("judged lines hold" in line for line in lines)
    assert json.loads(json.dumps(as_json(report), allow_nan=False))["ranking"]


def test_both_hold_requests_to_the_same_objectives() -> None:
    live, replay = tiny_recording.live_server(), tiny_recording.replay_server()
    assert replay.unloaded_tpot_s != live.unloaded_tpot_s
    made = on_profile(replay, replay.profile, live)
    assert made.unloaded_tpot_s == live.unloaded_tpot_s
    assert made.settings == replay.settings and made.decision_s == replay.decision_s


def test_a_scope_without_a_ranking_or_repeats_is_refused() -> None:
    Scope(blocks=0).check()
    with pytest.raises(UserError, match="at least 2"):
        Scope(blocks=1).check()
    with pytest.raises(UserError, match="at least 2"):
        Scope(live_runs=1).check()


def test_a_case_to_which_nobody_comes_is_refused() -> None:
    replay = ReplayServer.load(ReplayConfig())
    assert steady(replay, 0.7, 30.0, 0).requests()
    with pytest.raises(UserError, match="give more --seconds"):
        steady(replay, 0.7, 1e-6, 0)


# -- drift -------------------------------------------------------------------------------------


def test_a_slower_round_is_told_stage_by_stage() -> None:
    plan = profile_steps.episodes(quick=True)
    rounds = [profile_steps.timed(plan, repeats=1, slow=slow) for slow in (1.0, 1.5)]
    profile = profile_steps.profile_of(profile_steps.timed(plan))
    for drift in drifts(rounds, profile):
        assert drift.rounds[0] == pytest.approx(1.0, abs=0.05), drift.stage
        assert drift.rounds[1] == pytest.approx(1.5 * drift.rounds[0]), drift.stage
        assert drift.scale == pytest.approx(1.25, abs=0.05), drift.stage


def test_a_calibrated_profile_is_as_slow_as_the_rounds_were() -> None:
    plan = profile_steps.episodes(quick=True)
    profile = profile_steps.profile_of(profile_steps.timed(plan))
    slow = [profile_steps.timed(plan, repeats=1, slow=1.5)]
    made = calibrated(profile, drifts(slow, profile))
    assert made.verify.at(20, 500, 2) == pytest.approx(
        1.5 * profile.verify.at(20, 500, 2), rel=0.02
    )
    assert made.draft_next.at(4, 0, 1) / profile.draft_next.at(4, 0, 1) == pytest.approx(
        1.5, rel=0.03
    )
    for drift in drifts(slow, made):
        assert drift.scale == pytest.approx(1.0), drift.stage


# -- ranking -----------------------------------------------------------------------------------


def block(first_s: float, second_s: float) -> dict[str, Measured]:
    return {"a": run(tpot_s=first_s), "b": run(tpot_s=second_s)}


def by_tpot(live: list[dict[str, Measured]], replay: list[dict[str, Measured]]) -> Pair:
    return ranked(live, replay, np.random.default_rng(0))[0]


def test_a_rank_that_live_shows_must_be_replays_too() -> None:
    # TPOTs are 1, 2 and 3 times what is given, so a is faster by 2 · 0.1 s in every block.
    live = [block(0.1 + x, 0.2 + x) for x in (0.0, 0.01, 0.02, 0.03, 0.04)]
    pair = by_tpot(live, [block(0.1, 0.3)] * 5)
    assert pair.live.mean == pytest.approx(-200) and pair.live.excludes_zero
    assert pair.replay == pytest.approx(-400) and pair.holds
    assert pair.says == "a beats b on mean TPOT"
    assert not by_tpot(live, [block(0.3, 0.1)] * 5).holds


def test_where_live_shows_no_difference_replay_may_have_either() -> None:
    live = [block(0.1, 0.2), block(0.2, 0.1)] * 3
    pair = by_tpot(live, [block(0.3, 0.1)] * 6)
    assert pair.holds and pair.says.endswith("no difference shown")


def test_one_block_ranks_nobody() -> None:
    with pytest.raises(ValueError, match="two or more"):
        ranked([block(1, 2)], [block(1, 2)], np.random.default_rng(0))


# -- tiers -------------------------------------------------------------------------------------


def tiers(tokens: int = 0) -> Tiers:
    """Four texts on both; replay's drafts may be shifted to other tokens."""
    live, replay = tiny_recording.live_server(), tiny_recording.replay_server()
    if tokens:
        replay.book = replay.book._replace(token=(replay.book.token + tokens) % 64)
    return compared_tiers(live, replay, at_once(asked(4), 4))


def test_every_tier_of_the_tiny_pair_is_equal() -> None:
    found = tiers()
    assert found.visits > 40 and not found.different
    assert len(found.seen) > 200


def test_other_drafts_are_told_tier_by_tier() -> None:
    assert tiers(tokens=1).different


def test_lengths_are_compared_up_to_the_drafted_depth() -> None:
    within = np.ones((4, len(NODE_TIERS)), np.int64)
    other = within.copy()
    other[2, 3] = 2
    other[3, 0] = 9  # deeper than was drafted: says nothing
    found = compare({5: [Visit(2, 3, within)]}, {5: [Visit(2, 3, other)]})
    assert found.different == {(2, 3, NODE_TIERS[3]): 1}
    assert found.seen[1, 3, 1] == 1 and (3, 3, 1) not in found.seen
    assert compare({5: [Visit(2, 3, within)]}, {}).different


# -- the picture -------------------------------------------------------------------------------


def test_the_picture_has_a_panel_a_figure_and_a_dot_a_line() -> None:
    lines = [
        Told(case, name, Line("mean TPOT", 0.02, 0.021, 0.05, 0.1, 0.05), case == "low")
        for case in ("low", "high")
        for name in ("a<b", "c")
    ]
    lines.append(Told("low", "c", Line("attainment", 0.9, 0.8, -0.1, 0.0, math.inf), False))
    root = ElementTree.fromstring(draw(lines, "Live & replay"))
    titles = [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 5 and "low, a<b: +5.0%" in titles
    words = {e.text for e in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"mean TPOT (ms)", "attainment", "Live & replay", "a<b"} <= words
    assert "capacity" not in words and "capacity" in BARS
    hollow = [e for e in root.iter() if e.get("fill") == "none" and e.tag.endswith("circle")]
    assert len(hollow) == 3
