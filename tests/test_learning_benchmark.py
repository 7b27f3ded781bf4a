"""The learning benchmark: figures, page, folders of runs, and judgements on made-up runs."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import (
    learning_adaptation,
    learning_algorithms,
    learning_contest,
    learning_curves,
    learning_first_win,
    learning_live,
    learning_page,
    learning_processes,
    learning_runs,
    learning_subject,
)
from benchmarks.bench import Bench
from benchmarks.figures import Result, Row, UnmeasuredError, judged
from benchmarks.fresh_clone import Clones
from benchmarks.learning import FIGURES
from benchmarks.learning_intervals import beats, difference, ratio
from benchmarks.learning_pictures import PICTURES
from benchmarks.learning_processes import Job
from benchmarks.learning_serving import FIGURES as SERVED
from benchmarks.learning_serving import Table
from benchmarks.results import Results
from benchmarks.results_page import belongs, write_page
from policies import registry
from tests.test_features import make_view

ROOT = Path(__file__).resolve().parents[1]
STAMP = {"versions": {"revision": "abc", "hardware": {"processor": "a chip", "cores": 2}}}


@pytest.fixture
def bench() -> Bench:
    """Without networks or prompts."""

    def nothing(*_: object) -> Any:
        raise UnmeasuredError("this figure needs no networks")

    return Bench(nothing, nothing, nothing, Clones(ROOT), quick=True)


def row_of(name: str, raw: dict[str, Any]) -> Row:
    return Row(name, name, "1", "–", "reported", raw=raw)


def served(missed: list[float], good: list[float]) -> dict[str, list[float]]:
    """One controller over seeds, as `compared` has it."""
    values = {"violations": missed, "goodput": good}
    return {name: values.get(name, [80.0] * len(missed)) for name in SERVED}


# -- figures and page ------------------------------------------------------------------------------


def test_the_issues_bars_are_all_there() -> None:
    bars = {figure.name: str(figure.bar) for figure in FIGURES if figure.bar}
    algorithms = [name for name in bars if name.startswith("algorithm_")]
    assert len(algorithms) == 8 and {bars.pop(name) for name in algorithms} == {"≥ 2"}
    assert bars == {
        "ppo_beats_best_fixed": "≤ 5 min",
        "trained_violations": "≤ 0.8",
        "trained_goodput": "≥ 1.05",
        "trained_slack_priced": "≥ -1 %",
        "live_order": "≤ 0",
        "adaptation": "≥ 3",
        "exported_decision_class": "≤ 50 µs",
        "exported_decision_request": "≤ 200 µs",
        "exported_share": "≤ 0.5 %",
        "toy_action": "≥ 0.99",
        "toy_value": "≤ 1 %",
        "killed": "≤ 0",
        "tuned_adaptivespec": "≥ 0 tokens/s",
    }
    assert {f.name for f in FIGURES} > {"learning_to_draft", "contest", "algorithm_baselines"}


def test_every_figure_has_its_function() -> None:
    for figure in FIGURES:
        module, name = figure.measure.split(":")
        function = getattr(importlib.import_module(module), name)
        assert len(inspect.signature(function).parameters) == 2, figure.name


def test_every_figure_stands_on_the_page_once(tmp_path: Path) -> None:
    for figure in FIGURES:
        where = sum(belongs(figure.name, section.only) for section in learning_page.SECTIONS)
        assert where == 1, figure.name
    results = Results(tmp_path / "results.json")
    row = judged(FIGURES[0], Result(3.2, "3.2 min", note="the third checkpoint"))
    results.add(dataclasses.replace(row, quick=True), "2026-01-01T00:00:00", STAMP)
    page = tmp_path / "docs" / "results" / "learning.md"
    write_page(learning_page.PAGE, page, results.path, FIGURES)
    text = page.read_text()
    assert "| 3.2 min | ≤ 5 min | yes |" in text and "the third checkpoint" in text
    assert "Measured 2026-01-01T00:00:00 (short runs) on a chip, 2 cores, revision abc." in text
    assert text.count("NO, unmeasured") == len(FIGURES) - 1
    assert "learning-curves.svg" not in text  # of nothing no picture is drawn


def test_curves_are_drawn_side_by_side() -> None:
    curve = {"steps": [100, 200], "mean": [1.0, 12.0], "low": [None, 11.0], "high": [None, 13.0]}
    rows = {f.name: row_of(f.name, {}) for f in FIGURES}
    for name in ("ppo", "dqn"):
        rows[f"algorithm_{name}"] = row_of(name, {"curve": curve, "level": 5.0})
    drawn = PICTURES["learning-curves.svg"](rows)
    assert drawn is not None and ElementTree.fromstring(drawn).tag.endswith("svg")
    assert ">ppo<" in drawn and ">dqn<" in drawn and "12.0 after 200 decisions" in drawn


# -- intervals -------------------------------------------------------------------------------------


def test_a_ratio_is_of_interquartile_means_and_holds_the_truth() -> None:
    rng = np.random.default_rng(0)
    theirs = rng.normal(100.0, 5.0, 20)
    ours = 0.8 * theirs + rng.normal(0.0, 1.0, (5, 20))
    ours[0, 0] = 1e6  # one wild run moves nothing
    found = ratio(ours, theirs, np.random.default_rng(1))
    assert found.value == pytest.approx(0.8, abs=0.01)
    assert found.low < 0.8 < found.high < 0.85


def test_trainings_that_differ_widen_the_interval() -> None:
    theirs = np.full(20, 100.0)
    alike = np.random.default_rng(0).normal(90.0, 1.0, (5, 20))
    apart = alike + np.array([-20.0, -10.0, 0.0, 10.0, 20.0])[:, None]
    widths = [
        found.high - found.low
        for ours in (alike, apart)
        for found in [difference(ours, theirs, np.random.default_rng(1))]
    ]
    assert widths[1] > 10 * widths[0]
    alone = difference(alike[:1, :1], theirs[:1], np.random.default_rng(1))
    assert alone.low == -np.inf and alone.high == np.inf


def test_it_beats_only_with_more_goodput_shown_and_no_more_violations() -> None:
    theirs = {"goodput": np.array([10.0, 11.0, 12.0]), "violations": np.array([5.0, 6.0, 7.0])}
    better = {"goodput": theirs["goodput"] + [1.0, 1.1, 0.9], "violations": theirs["violations"]}
    assert beats(better, theirs, np.random.default_rng(0))[0]
    worse = better | {"violations": theirs["violations"] + 1}
    assert not beats(worse, theirs, np.random.default_rng(0))[0]
    unsure = theirs | {"goodput": theirs["goodput"] + [4.0, -3.0, 1.0]}
    assert not beats(unsure, theirs, np.random.default_rng(0))[0]


# -- the subject -----------------------------------------------------------------------------------


def table_of(missed: float, good: float) -> Table:
    """Two trainings that have `missed` and `good` times AdaServe's."""
    base = np.array([40.0, 50.0, 60.0, 55.0, 45.0, 52.0, 48.0, 49.0])
    tokens = 2.0 * base
    table = {
        f"trained {i}": served((missed * base + i / 10).tolist(), (good * tokens).tolist())
        for i in range(2)
    }
    table["adaserve"] = served(base.tolist(), tokens.tolist())
    table["slack-priced"] = served((0.8 * base).tolist(), tokens.tolist())
    table["best-fixed"] = served((2 * base).tolist(), (tokens / 2).tolist())
    return table


@pytest.mark.parametrize(("missed", "good", "holds"), [(0.7, 1.1, True), (0.99, 1.001, False)])
def test_the_subject_is_compared_with_all_three(
    bench: Bench, missed: float, good: float, holds: bool
) -> None:
    figures = {figure.name: figure for figure in FIGURES}
    raw = learning_subject.told(table_of(missed, good), 2, bench.rng())
    result = learning_subject.of_ratio(raw, "violations")
    assert result.value == pytest.approx(missed, abs=0.01)
    rows = [judged(figures["trained_violations"], result)]
    bench.rows = {learning_subject.RUN: row_of(learning_subject.RUN, json.loads(json.dumps(raw)))}
    for argument, name in (
        ("goodput", "trained_goodput"),
        ("slack-priced", "trained_slack_priced"),
    ):
        found = learning_subject.from_the_run(bench, argument)
        rows.append(judged(figures[name], found))
    assert [row.passes for row in rows] == [holds] * 3
    assert "2 trainings, 8 held-out seeds" in rows[0].note


def test_no_worse_than_slack_priced_is_not_better(bench: Bench) -> None:
    table = table_of(0.7, 1.0)
    for i in range(2):
        table[f"trained {i}"] = table["slack-priced"]
    result = learning_subject.over_slack_priced(learning_subject.told(table, 2, bench.rng()))
    assert result.value == pytest.approx(0.0) and result.broken == "shown to be better on neither"


def test_what_hangs_on_another_figure_says_so(bench: Bench) -> None:
    for function, argument, needed in (
        (learning_subject.from_the_run, "goodput", "trained_violations"),
        (learning_subject.against_adaserve, "", "contest"),
        (learning_algorithms.beaten, "dqn", "algorithm_baselines"),
        (learning_adaptation.below, "", "contest"),
        (learning_live.order, "", "contest"),
    ):
        with pytest.raises(UnmeasuredError, match=needed):
            function(bench, argument)


def test_the_load_is_halved_to_where_adaserve_attains_so_much(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(_: Bench, setting: Any, specs: Any, seeds: int, *rest: Any) -> Table:
        assert not setting.held_out
        missed = 100 * (setting.load - 0.5)
        return {spec: {"requests": [100.0], "violations": [missed]} for spec in specs}

    monkeypatch.setattr(learning_contest, "compared", compared)
    monkeypatch.setattr(learning_contest, "QUICK_STEPS", 8)
    load, tried = learning_contest.load_for(bench, "adaserve")
    assert abs(tried[load] - 77.5) <= 1.5
    bench.rows = {"contest": row_of("contest", {"load": load, "adaserve": "a", "best_fixed": "b"})}
    assert learning_contest.found(bench) == (load, "a", "b")


# -- trainings -------------------------------------------------------------------------------------


def test_a_finished_run_serves_whoever_asks_for_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(learning_runs, "FOLDER", tmp_path)
    monkeypatch.setattr(learning_runs, "need_cores", lambda: None)
    monkeypatch.setattr(learning_runs, "_asked", list)
    begun: list[list[str]] = []

    def ran(_: Bench, jobs: list[Job], lanes: int) -> None:
        for job in jobs:
            begun.append(list(job.words))
            for name in ("config.toml", "versions.json"):
                job.folder.mkdir(parents=True, exist_ok=True)
                (job.folder / name).write_text("{}")
            if len(begun) > 1:  # the first is cut
                (job.folder / "controller").mkdir(parents=True)
                (job.folder / "controller" / "manifest.json").write_text("{}")
                (job.folder / "DONE").write_text("")

    monkeypatch.setattr(learning_runs, "side_by_side", ran)
    options = ("--policy", "dqn", "--minutes", "4")
    with pytest.raises(UnmeasuredError, match="unfinished"):
        learning_runs.trained(bench, options, 3)
    run = learning_runs.trained(bench, options, 3)
    assert run == learning_runs.trained(bench, options, 3) and len(begun) == 2
    assert begun[0][:2] == ["train.py", "--out"] and begun[1] == ["train.py", "--resume", str(run)]
    assert begun[0][-4:] == ["--seed", "3", "--eval-seeds", "0"]
    assert learning_runs.trained(bench, (*options, "--set", "learning_rate=1e-4"), 3) != run
    assert learning_runs.trainings(bench, options, (3, 4))[0] == run and len(begun) == 4


def test_two_commands_run_side_by_side_and_one_that_fails_stops_the_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(learning_processes, "POLL_S", 0.01)
    code = "import os, sys; print(len(os.sched_getaffinity(0))); sys.exit({})"
    good = [Job(("-c", code.format(0)), tmp_path / f"run{i}", f"run {i}") for i in range(3)]
    learning_processes.side_by_side(bench, good, lanes=2)
    cores = max(1, min(2, len(os.sched_getaffinity(0))) // 2)
    assert [(tmp_path / f"run{i}.log").read_text() for i in range(3)] == [f"{cores}\n"] * 3
    endless = Job(("-c", "import time; time.sleep(600)"), tmp_path / "endless", "endless")
    failing = Job(("-c", code.format("'no such day'")), tmp_path / "failing", "failing")
    with pytest.raises(UnmeasuredError, match="failed: no such day"):
        learning_processes.side_by_side(bench, [endless, failing], lanes=2)


def test_options_that_train_does_not_take_are_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning_runs, "need_cores", lambda: None)
    with pytest.raises(UnmeasuredError, match="no-such"):
        learning_runs.trained(bench, ("--policy", "ppo", "--no-such", "1"))


def test_checkpoints_are_copied_once_each(tmp_path: Path) -> None:
    copies, run = tmp_path / "copies", tmp_path / "run"
    copies.mkdir()
    copier = learning_first_win.Copier(copies)
    copier(run)
    (run / "checkpoints").mkdir(parents=True)
    last = run / "checkpoints" / "last.zip"
    for content in (b"one", b"one", b"two"):
        if not last.exists() or last.read_bytes() != content:
            last.with_suffix(".tmp").write_bytes(content)
            last.with_suffix(".tmp").replace(last)
        copier(run)
    assert [path.read_bytes() for path in sorted(copies.iterdir())] == [b"one", b"two"]


def test_the_first_checkpoint_that_beats_counts(bench: Bench) -> None:
    theirs = {"best-fixed": served([5.0, 6.0, 7.0], [10.0, 11.0, 12.0])}
    ours = {"ppo": served([5.0, 6.0, 7.0], [12.0, 13.1, 13.9])}
    later, early = (
        at | learning_algorithms.against(table, theirs, "best-fixed", bench.rng())
        for at, table in (
            ({"minutes": 1.0, "decisions": 9}, ours),
            ({"minutes": 0.5, "decisions": 4}, {"ppo": theirs["best-fixed"]}),
        )
    )
    assert learning_first_win.first_of([early, later], 8, "tree").value == 1.0
    never = learning_first_win.first_of([early], 1, "tree")
    assert never.value == np.inf and judged(FIGURES[0], never).status == "missed"


# -- algorithms ------------------------------------------------------------------------------------


def test_a_curve_is_over_what_all_trainings_reached(tmp_path: Path) -> None:
    runs = []
    for i, last in enumerate((31, 32)):
        rows: list[dict[str, Any]] = [
            {"step": 10, "eval/score": 1.0 + i},
            {"step": 15, "slo/attainment": 0.5},
            {"step": 20, "eval/score": 9.0 + i / 10},
            {"step": last, "eval/score": 20.0},
        ]
        runs.append(tmp_path / str(i))
        runs[-1].mkdir()
        (runs[-1] / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    curve = learning_curves.curve_of(runs)
    assert curve["steps"] == [10, 20] and curve["mean"] == pytest.approx([1.5, 9.05])
    assert curve["each"][1][-1] == [32, 20.0]
    assert learning_curves.steps_to(curve, 5.0) == 20
    assert learning_curves.steps_to(curve, 9.0) is None  # its mean is above, not its interval


def test_an_algorithm_is_set_against_both_opponents(bench: Bench) -> None:
    theirs = {
        "autoregressive": served([9.0, 8.0, 9.0], [5.0, 6.0, 5.0]),
        "random policy": served([9.0, 9.0, 8.0], [14.0, 15.0, 14.0]),
        "best-fixed": served([1.0, 1.0, 1.0], [30.0, 31.0, 30.0]),
    }
    ours = {str(i): served([8.0, 7.0, 8.0], [10.0 + i, 11.0, 10.0]) for i in range(2)}
    found = learning_algorithms.told(ours, theirs, bench.rng())
    found |= {"steps_to_best_fixed": None, "curve": {"steps": [10, 20]}}
    result = learning_algorithms.of_opponents(found)
    assert result.value == 1 and result.text == "1 of 2"
    assert "never shown above the best fixed tree of 20" in result.note


def test_a_random_policy_repeats_and_holds() -> None:
    view = make_view(np.random.default_rng(0))
    drawn = []
    for seed in (3, 3, 4):
        controller = registry.make(f"{learning_algorithms.RANDOM}(seed={seed})")
        controller.reset(view.limits)
        drawn.append([controller.plan(view).depth.tolist() for _ in range(40)])
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(drawn[0][i] == drawn[0][i - i % 4] for i in range(40))
    assert len({tuple(depth) for depth in drawn[0]}) > 5
