"""The adaptation test: its disturbances, its oracle and its figures, on runs followed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.protocol import Controller, Plan, View
from engine.replay.capacity_trees import Tree, within
from engine.replay.drawing import RecordedDrawing
from engine.request import Request
from engine.workload import Disturbance, WorkloadConfig, disturbances_of, episode_generator
from eval import oracle_sweep, runner
from eval.adaptation import adaptation
from eval.adaptation_test import passages
from eval.adaptation_test.course import Acts, Course, course_of
from eval.adaptation_test.disturbances import WINDOW_S, disturbed
from eval.adaptation_test.figures import FIGURES, values
from eval.adaptation_test.judging import rows_of
from eval.adaptation_test.serving import Setting, Task, drawing, served
from eval.adaptation_test.summary import summary_of
from eval.adaptation_test.verdicts import verdict_of
from eval.oracle import ORACLE
from eval.replay_world import World
from eval.windows import Series, Timeline
from policies import registry
from tests.test_adaptation import FLAT, series
from tests.tiny_recording import replay_server

QUICK = Setting(World(), scale=0.2)
NAMES = ("mix", "rate", "acceptance", "draft_time", "memory", "power_cap", "three-peaks")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache of this test's own."""
    monkeypatch.setenv("DRAFTGYM_CACHE", str(tmp_path / "cache"))


# -- disturbances ------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_changes_come_at_windows_and_stretches_join(scale: float) -> None:
    found = disturbed(scale)
    assert tuple(found) == NAMES
    for of in found.values():
        edges = [s.start_s for s in of.stretches] + [of.end_s]
        assert edges[0] == 0.0 and edges == sorted(set(edges))
        assert all(a.end_s == b.start_s for a, b in pairwise(of.stretches))
        assert all(round(at / of.window_s) == pytest.approx(at / of.window_s) for at in edges)
        assert of.config.duration_s == of.end_s


def test_what_is_no_regime_leaves_the_arrivals_alone_and_holds_between_the_changes() -> None:
    found = disturbed()
    values = {"acceptance": 0.3, "draft_time": 4.0, "memory": 0.7, "power_cap": 0.5}
    usual = {"acceptance": 1.0, "draft_time": 1.0, "memory": 0.0, "power_cap": 1.0}
    arrivals = []
    for name, value in values.items():
        requests = drawing(Setting(World()), name, True)(episode_generator(1000))
        arrivals.append([(r.arrival_s, r.slo_class, r.max_tokens) for r in requests])
        wrong, comes, goes = disturbances_of(requests), *found[name].stretches[1:]
        seen = [wrong.value(name, t) for t in (comes.start_s - 1, goes.start_s - 1, 150.0)]
        assert seen == pytest.approx([usual[name], value, usual[name]])
    assert all(of == arrivals[0] for of in arrivals)


# -- the oracle's sweep ------------------------------------------------------------------------


@pytest.mark.usefixtures("empty_cache")
def test_the_sweep_is_what_single_engines_come_to_one_by_one() -> None:
    server = replay_server()
    slow = Disturbance("draft_time", 2.0, 4.0, 20.0)
    work = WorkloadConfig(
        name="tiny", duration_s=6.0, load=0.7, max_tokens=24, disturbances=(slow,)
    )
    draw = RecordedDrawing(server, work)

    def fresh(seed: int) -> list[Request]:
        """An engine writes into its requests, so each is given others."""
        return oracle_sweep.alone(draw(np.random.default_rng(seed)), 2.0, 4.0)

    part = [fresh(seed) for seed in range(2)]
    assert all(2.0 <= r.arrival_s < 4.0 for of in part for r in of) and all(map(len, part))
    settings = replace(server.settings, horizon_s=4.0)
    by_hand = {}
    for tree in within(server.settings.limits):
        engines = [server.engine(fresh(seed), settings=settings) for seed in range(2)]
        runs = [runner.serve("it", registry.make(tree.spec), 0, engine) for engine in engines]
        by_hand[tree] = float(np.mean([run.metrics.valid_tps for run in runs]))
    swept = oracle_sweep.swept(server, part, 4.0)
    assert {of.tree: of.valid_tps for of in swept} == pytest.approx(by_hand)
    best = oracle_sweep.best_tree(server, part, 4.0)
    assert best.valid_tps == pytest.approx(max(by_hand.values()))
    assert best.tree == Tree(0, 1, 1)  # while drafts cost twenty times as much nobody drafts


@pytest.mark.usefixtures("empty_cache")
def test_the_sweep_is_read_from_the_cache_and_only_for_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = replay_server()
    draw = RecordedDrawing(server, WorkloadConfig(name="tiny", duration_s=4.0, load=0.7))
    part = [oracle_sweep.alone(draw(np.random.default_rng(0)), 0.0, 4.0)]
    found = oracle_sweep.best_tree(server, part, 4.0)
    monkeypatch.setattr(oracle_sweep, "swept", lambda *_: [])
    assert oracle_sweep.best_tree(server, part, 4.0) == found
    with pytest.raises(ValueError):
        oracle_sweep.best_tree(server, part, 3.0)  # another cut was never swept


# -- courses -----------------------------------------------------------------------------------


def test_a_course_by_hand() -> None:
    timeline = Timeline(
        valid_at_s=np.array([0.5, 1.5, 3.5]),
        valid_tokens=np.array([4, 2, 6]),
        iteration_at_s=np.array([0.5, 1.5, 3.5]),
        changes=np.array([0.0, 1.0, 0.5]),
        judged_at_s=np.array([1.0, 3.0]),
        missed=np.array([True, False]),
    )
    acts = Acts()
    acts.at_s, acts.ran = [0.5, 1.5, 5.0], [2.0, 1.0, 1.0]
    acts.offered, acts.verified = [6.0, 0.0, 3.0], [10.0, 2.0, 5.0]
    acts.good_at_s, acts.good_tokens = [3.0], [8.0]
    course = course_of(timeline, acts, 6.0, 2.0)
    assert course.valid_tps == [3.0, 3.0, 0.0]
    assert course.good_tps == [0.0, 4.0, 0.0]
    assert course.changes == [1.0, 0.5, 0.0]
    assert course.depth[0] == 2.0 and math.isnan(course.depth[1]) and course.depth[2] == 3.0
    assert course.nodes[0] == 4.0
    assert course.attainment[0] == 0.0 and course.attainment[1] == 1.0
    assert course.series(2.0, 6.0).valid_tps.tolist() == [3.0, 0.0]
    with pytest.raises(ValueError, match="cuts windows"):
        course.series(1.0, 6.0)


# -- figures -----------------------------------------------------------------------------------


def test_seeds_together_are_judged_by_their_mean_course() -> None:
    # Two seeds whose noise is opposite: either alone has a tolerance of 1 or more, together they
    # are the oracle of test_adaptation's first example, 100 tokens/s without any noise.
    noise = np.array([90.0, -90.0] * 6)
    own = np.array([20.0, 60.0, 90.0, *[96.0] * 9])
    oracle = [series([*(np.array(FLAT) + sign * noise)]) for sign in (1, -1)]
    mine = [series(own.tolist(), violations=[3, 2, 1, 1, *[0] * 8])] * 2
    assert not adaptation(mine[0], oracle[0]).judged
    passage = passages.Passage([1, 2], mine, oracle)
    found = passages.together(passage)
    assert found.judged and found.settled and found.settling_s == 6.0
    figures = passages.figures_of([passage])
    value = {name: figures[name]["value"] for name in passages.TITLES}
    assert value["settling_s"] == value["restricted_s"] == value["excess_s"] == 6.0
    assert value["transient"] == pytest.approx(100 * 260 / 2400)
    assert value["steady"] == pytest.approx(100 * 72 / 2400)
    assert value["debt"] == pytest.approx(100 * 332 / 2400)
    assert value["undershoot"] == pytest.approx(80.0)
    assert value["violations"] == 6.0
    assert value["not_settled"] == 0.0 and figures["changes"] == 1


def test_who_never_settles_is_censored_and_one_seed_shows_no_interval() -> None:
    late = passages.Passage([1], [series([10.0] * 12)], [series(FLAT)])
    soon = passages.Passage([1], [series(FLAT)], [series(FLAT)])
    figures = passages.figures_of([late, late, soon])
    assert figures["settling_s"]["value"] == math.inf  # two of three were never seen to settle
    assert figures["restricted_s"]["value"] == pytest.approx(2 / 3 * 24.0)
    assert figures["not_settled"]["value"] == pytest.approx(200 / 3)
    assert figures["censored"] == 2 and figures["changes"] == 3
    assert figures["debt"]["low"] == -math.inf and figures["debt"]["high"] == math.inf


def test_nobody_to_judge_is_told_apart_from_nothing_lost() -> None:
    noisy = series([190.0, 10.0] * 6)
    figures = passages.figures_of([passages.Passage([1, 2], [noisy, noisy], [noisy, noisy])])
    assert figures["unjudged"] == 1 and math.isnan(figures["debt"]["value"])
    assert passages.figures_of([])["changes"] == 0


def test_a_failed_run_is_marked_and_the_others_stand() -> None:
    of = disturbed()
    count = round(of["mix"].end_s / of["mix"].window_s)
    whole = {"course": course(count).plain(), **dict.fromkeys(RUN, 1.0)}
    runs: dict[tuple[str, str, int], dict[str, Any]] = {
        ("mix", ORACLE, 1000): whole,
        ("mix", "steady", 1000): whole,
        ("mix", "broken", 1000): {"failed": "ValueError: no"},
    }
    rows = rows_of(of, runs)
    steady = [row for row in rows if row["controller"] == "steady"]
    assert [row["change"] for row in steady] == [1, 2]
    assert all(row["regret_tokens"] == 0.0 and row["settled"] for row in steady)
    (broken,) = [row for row in rows if row["controller"] == "broken"]
    assert broken["failed"] == "ValueError: no" and "regret_tokens" not in broken


def test_seeds_that_came_through_all_passages_are_resampled_together() -> None:
    """By places the ruined seed 2 of one passage would be the good seed 3 of the other."""
    good, ruined = series(FLAT), series([0.0] * 12)
    whole = passages.Passage([1, 2, 3], [good, ruined, good], [good] * 3)
    without = passages.Passage([1, 3], [good, good], [good] * 2)
    figures = passages.figures_of([whole, without])
    assert figures["debt"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert passages.figures_of([whole])["debt"]["value"] == pytest.approx(100 / 3)
    assert passages.figures_of([whole])["debt"]["high"] == 100.0  # Student's t alone says more
    assert passages.figures_of([whole, passages.Passage([], [], [])])["changes"] == 0


def test_to_fail_in_the_hardest_disturbance_brings_nothing() -> None:
    regret = next(of for of in FIGURES if of.name == "regret")
    rows = [
        {"disturbance": name, "seed": seed, "regret_tokens": lost, "oracle_tokens": 100.0}
        for name, lost in (("mix", 10.0), ("memory", 90.0))
        for seed in (1, 2)
    ]
    both = ("mix", "memory")
    assert values(regret, rows, [1, 2], both).tolist() == [50.0, 50.0]
    flees = [row for row in rows if (row["disturbance"], row["seed"]) != ("memory", 2)]
    found = values(regret, flees, [1, 2], both)
    assert found[0] == 50.0 and math.isnan(found[1])
    assert values(regret, flees, [1, 2], ["mix"]).tolist() == [10.0, 10.0]


def test_a_seed_that_failed_once_is_in_no_figure_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "DRAWS", 4)
    of, seeds = disturbed(), [1000, 1001]
    runs: dict[tuple[str, str, int], dict[str, Any]] = {}
    for name, one in of.items():
        flat = course(round(one.end_s / one.window_s)).plain()
        for who in (ORACLE, "stays", "flees"):
            runs |= {(name, who, s): {"course": flat, **dict.fromkeys(RUN, 1.0)} for s in seeds}
    runs["memory", "flees", 1001] = {"failed": "ValueError: no"}
    best = {"tree": "chain(1)", "valid_tps": 1.0}
    oracle = {name: [best] * len(one.stretches) for name, one in of.items()}
    found = summary_of(of, ["stays", "flees"], seeds, oracle, runs, rows_of(of, runs))
    stays, flees = (found["figures"]["all"][who] for who in ("stays", "flees"))
    assert stays["regret"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert flees["regret"] == {"value": 0.0, "low": -math.inf, "high": math.inf}  # of one seed
    assert flees["debt"]["high"] == math.inf and flees["changes"] == stays["changes"]
    assert found["figures"]["mix"]["flees"]["regret"]["high"] == 0.0
    assert found["verdicts"]["all"]["least"] == "stays"
    assert found["verdicts"]["all"]["without"] == {"flees": 1}


RUN = ("attainment", "goodput_tps", "valid_tps", "waste_share", "joules_per_valid_token")


def course(count: int, tps: float = 100.0) -> Course:
    """A flat one in the test's windows."""
    flat, zeros = [tps] * count, [0] * count
    return Course(WINDOW_S, flat, flat, [9] * count, zeros, zeros, [0.0] * count, flat, flat)


# -- verdicts ----------------------------------------------------------------------------------


def test_the_verdict_names_who_loses_more_and_where_nothing_is_shown() -> None:
    rng = np.random.default_rng(1)
    best = rng.normal(2.0, 0.5, 10)
    regret = {"worse": best + 9.0 + rng.normal(0, 0.1, 10), "best": best, "alike": best[::-1] + 0.1}
    said = verdict_of("abrupt mix", regret)
    assert (
        said["least"] == "best" and said["undecided"] == ["alike"] and said["behind"] == ["worse"]
    )
    assert (
        "against alike no difference shown" in said["says"] and "worse loses more" in said["says"]
    )
    assert "beats the switching oracle" not in said["says"]
    assert "beats the switching oracle" in verdict_of("x", {"it": best - 9.0})["says"]
    assert verdict_of("x", {"it": np.array([math.nan])})["least"] is None


def test_the_best_of_many_beats_the_oracle_by_an_interval_of_many() -> None:
    own = np.array([-1.0, -2.0, -3.0, -3.5])
    assert "beats the switching oracle" in verdict_of("x", {"a": own})["says"]
    others = {f"b{i}": own + 5.0 for i in range(7)}
    said = verdict_of("x", {"a": own, **others})
    assert said["least"] == "a" and "beats the switching oracle" not in said["says"]


def test_who_fails_in_hard_seeds_is_not_the_least() -> None:
    own = np.array([1.0, 1.1, 1.2, 1.3, 60.0, 61.0])
    flees = np.where(own > 50.0, math.nan, own - 0.5)
    said = verdict_of("x", {"flees": flees, "stays": own, "broken": own * math.nan})
    assert said["least"] == "stays" and said["ahead"] == ["flees"]
    assert said["says"].endswith("failed: flees in 2 of 6 seeds and broken in 6 of 6 seeds")


def test_one_seed_decides_nothing() -> None:
    said = verdict_of("abrupt mix", {"a": np.array([1.0]), "b": np.array([50.0])})
    assert said["undecided"] == ["b"] and said["behind"] == []


# -- whole runs --------------------------------------------------------------------------------


class Raises(Controller):
    """Fails at its first plan."""

    name = "raises"

    def plan(self, view: View) -> Plan:
        """Never."""
        raise ValueError("no plan")


def test_who_never_changes_shows_regret_where_it_is_wrong_and_none_as_the_oracle() -> None:
    """The negative control: deep chains for ever, through four times slower drafts."""
    trees = ("chain(2)", "autoregressive", "chain(2)")

    def run(spec: str = "", **of: Any) -> dict[str, Any]:
        return served(Task(QUICK, "draft_time", 1000, spec=spec, **of))

    runs = {
        ("draft_time", ORACLE, 1000): run(trees=trees),
        ("draft_time", "never changes", 1000): run("chain(4)"),
        ("draft_time", "the oracle again", 1000): run(trees=trees),
        ("draft_time", "raises", 1000): run(f"{__name__}:Raises"),
    }
    rows = rows_of(disturbed(QUICK.scale), runs)

    def regret(who: str) -> list[float]:
        return [row["regret_share"] for row in rows if row["controller"] == who]

    assert regret("never changes")[0] > 0.2
    assert regret("the oracle again") == [0.0, 0.0]
    assert runs["draft_time", "raises", 1000] == {"failed": "ValueError: no plan"}
    own = Course(**runs["draft_time", "never changes", 1000]["course"])
    assert np.nanmax(own.depth) <= 4.0 and np.nanmean(own.depth) > 3.0


def test_series_are_those_of_the_same_windows() -> None:
    cut = course(40).series(20.0, 52.5)
    assert isinstance(cut, Series) and len(cut.valid_tps) == 13 and cut.start_s == 20.0
