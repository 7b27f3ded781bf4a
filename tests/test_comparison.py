"""The paired runner on a tiny live engine, and what the table says about its result."""

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from rich.console import Console

from engine.classes import DEFAULT_CLASSES
from engine.loop import Engine, EngineSettings
from engine.protocol import Controller, Outcome, View
from engine.request import Request
from engine.tiny import tiny_server
from eval import metrics, runner, table
from eval.results import write_results
from eval.runner import Comparison, Run, SeededRequests
from policies.registry import make

MakeEngine = Callable[[list[Request]], Engine]


def requests(seed: int) -> list[Request]:
    rng = np.random.default_rng(seed)
    return [Request(i, i % 3, rng.integers(0, 64, 6).tolist(), 8, 0.001 * i) for i in range(4)]


def episode(seed: int) -> SeededRequests:
    return SeededRequests(seed, lambda: requests(seed))


@pytest.fixture(scope="module")
def make_engine() -> MakeEngine:
    server = tiny_server()
    return lambda arrivals: server.engine(arrivals, DEFAULT_CLASSES)


def test_all_serve_the_same_arrivals_in_rotating_order(make_engine: MakeEngine) -> None:
    controllers = {name: make(name) for name in ("autoregressive", "chain", "eagle3")}
    order: list[tuple[str, int, int]] = []
    found = runner.run(
        controllers,
        [episode(5), episode(6)],
        make_engine,
        announce=lambda *told: order.append(told),
    )
    assert found.seeds == (5, 6)
    assert [name for name, _, _ in order] == [
        *("autoregressive", "chain", "eagle3"),
        *("chain", "eagle3", "autoregressive"),
    ]
    assert [(done, total) for _, done, total in order] == [(i, 6) for i in range(6)]
    tokens = {name: [r.metrics.output_tokens for r in rows] for name, rows in found.runs.items()}
    assert tokens["autoregressive"] == tokens["chain"] == tokens["eagle3"]  # lossless
    plain, tree = found.runs["autoregressive"][0], found.runs["eagle3"][0]
    assert plain.tokens_per_iteration == 1.0
    assert tree.tokens_per_iteration >= 1.0
    assert plain.iterations >= tree.iterations
    assert plain.metrics.requests == 4
    assert plain.decision_s > 0


def test_what_is_left_at_the_horizon_is_a_miss() -> None:
    server = tiny_server()
    settings = EngineSettings(
        server.settings.limits, server.settings.capacity_tokens, horizon_s=1e-6
    )
    found = runner.run(
        {"autoregressive": make("autoregressive")},
        [episode(1)],
        lambda arrivals: server.engine(arrivals, DEFAULT_CLASSES, settings),
    )
    (run,) = found.runs["autoregressive"]
    assert run.metrics.unfinished > 0
    assert run.metrics.attainment < 1.0
    assert not run.capped


def test_a_limit_on_iterations_is_told(make_engine: MakeEngine) -> None:
    found = runner.run({"a": make("autoregressive")}, [episode(1)], make_engine, max_iterations=2)
    assert found.runs["a"][0].iterations == 2
    assert found.runs["a"][0].capped


def test_controllers_are_reset_before_every_episode(make_engine: MakeEngine) -> None:
    class Counting(Controller):
        resets = 0

        def reset(self, limits: object) -> None:
            self.resets += 1

        def plan(self, view: View):  # type: ignore[no-untyped-def]
            return make("autoregressive").plan(view)

        def observe(self, outcome: Outcome) -> None:
            assert self.resets

    counting = Counting()
    runner.run({"counting": counting}, [episode(1), episode(2)], make_engine)
    assert counting.resets == 2


def made_run(name: str, seed: int, attainment: float, goodput: float) -> Run:
    empty = metrics.summarise([], DEFAULT_CLASSES)
    values = empty.__dict__ | {"attainment": attainment, "goodput_tps": goodput, "requests": 20}
    return Run(
        controller=name,
        seed=seed,
        metrics=metrics.EpisodeMetrics(**values),
        iterations=9,
        tokens_per_iteration=2.0,
        decision_s=5e-6,
        joules_per_token=0.2,
        power_is_measured=False,
        clock_s=10.0,
        capped=False,
    )


@pytest.fixture
def report() -> table.Report:
    hardness = [0.0, 0.1, 0.2, 0.05, 0.15]
    runs = {
        "ours": tuple(made_run("ours", s, 0.7 + h, 100 + h) for s, h in enumerate(hardness)),
        "worse": tuple(made_run("worse", s, 0.5 + h, 90 + h) for s, h in enumerate(hardness)),
        "like": tuple(
            made_run("like", s, 0.7 + h + (-1) ** s * 0.1, 120 + h) for s, h in enumerate(hardness)
        ),
    }
    comparison = Comparison(tuple(range(5)), runs)
    return table.build(comparison, DEFAULT_CLASSES, "steady load", "ours", np.random.default_rng(0))


def test_verdict_is_in_words_and_from_intervals(report: table.Report) -> None:
    assert report.verdict == (
        "ours beats worse on attainment and goodput; like beats ours on goodput; "
        "against like on attainment: no difference shown."
    )


def test_every_form_says_the_same(report: table.Report) -> None:
    markdown = table.as_markdown(report)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table.as_rich(report))
    shown = console.export_text()
    for cells in report.cells:
        for cell in cells:
            assert cell in markdown
            assert cell in shown
    assert "5 paired seeds" in shown
    assert report.verdict in markdown
    assert "| ours | 80 [" in markdown


def test_json_is_strict_and_has_every_seed(report: table.Report) -> None:
    text = json.dumps(table.as_json(report), allow_nan=False)
    values = json.loads(text)
    assert [r["seed"] for r in values["controllers"]["ours"]["runs"]] == [0, 1, 2, 3, 4]
    assert values["verdict"] == report.verdict
    assert values["controllers"]["ours"]["figures"]["p95 TPOT, coding"]["mean"] is None


def test_small_samples_and_modelled_energy_are_told(report: table.Report) -> None:
    notes = " ".join(report.notes)
    assert "10 or more" in notes
    assert "modelled" in notes


def test_one_seed_shows_no_interval_and_no_difference() -> None:
    runs: dict[str, tuple[Run, ...]] = {
        n: (made_run(n, 0, a, 50.0),) for n, a in (("a", 0.9), ("b", 0.1))
    }
    report = table.build(
        Comparison((0,), runs), DEFAULT_CLASSES, "steady", "a", np.random.default_rng(0)
    )
    assert report.cells[0][0] == "90"
    assert report.verdict == "a against b on attainment and goodput: no difference shown."


def test_cost_and_classes_stand_below_the_table(make_engine: MakeEngine) -> None:
    names = ("autoregressive", "eagle3(3,4,8)")
    found = runner.run({n: make(n) for n in names}, [episode(1), episode(2)], make_engine)
    rng = np.random.default_rng(0)
    written = table.build(found, DEFAULT_CLASSES, "steady", names[0], rng)
    main, cost, by_class = table.as_markdown(written).split("\n\n**")
    assert "served with order fcfs, prompts in chunks of 64, up to 16 running: aut" in main
    assert cost.startswith("What it cost**")
    lines = [line for line in cost.splitlines() if line.startswith("| eagle3")]
    assert len(lines) == 1 and lines[0].count("|") == len(written.cost[0]) + 2
    rows = [line for line in by_class.splitlines() if line.startswith(("| auto", "| eagle"))]
    assert [row.split(" | ")[:2] for row in rows] == [
        [f"| {name}", slo_class] for name in names for slo_class in DEFAULT_CLASSES.names
    ]
    values = json.loads(json.dumps(table.as_json(written), allow_nan=False))
    run = values["controllers"][names[1]]["runs"][0]
    assert run["settings"]["order"] == "fcfs"
    assert run["metrics"]["by_class"]["coding"]["itl_s"]["p50"] >= 0.0
    assert run["wasted_nodes"] > 0
    assert values["controllers"][names[1]]["cost"]["valid tok/device-s"]["mean"] > 0


def test_signed_ranks_stand_beside_the_intervals(report: table.Report) -> None:
    p_values = {(d.other, d.metric): d.wilcoxon_p for d in report.differences}
    # All five seeds on one side: 2/32, times the four comparisons of Holm's first step.
    assert p_values["worse", "attainment"] == p_values["worse", "goodput"] == 4 * 2 / 32
    assert p_values["like", "attainment"] == 1.0


def with_violations(run: Run, violations: int) -> Run:
    metrics_now = dataclasses.replace(run.metrics, violations=violations)
    return dataclasses.replace(run, metrics=metrics_now)


@pytest.mark.parametrize(("ours", "told"), [(10, "2.00"), (5, None)])
def test_violations_are_set_against_the_best_other(
    report: table.Report, ours: int, told: str | None
) -> None:
    counts = {"ours": ours, "worse": 40, "like": 20}
    runs = {
        name: tuple(with_violations(run, counts[name]) for run in rows)
        for name, rows in report.comparison.runs.items()
    }
    comparison = Comparison(report.comparison.seeds, runs)
    rng = np.random.default_rng(0)
    found = table.build(comparison, DEFAULT_CLASSES, "steady", "ours", rng).violations
    assert found is not None and found.other == "like"
    if told is None:  # 25 violations are too few to divide by
        assert found.ratio is None
    else:
        assert found.ratio is not None and f"{found.ratio.mean:.2f}" == told


def test_files_are_written_with_versions(report: table.Report, tmp_path: Path) -> None:
    write_results(report, tmp_path / "out", {"slots": 4}, "python evaluate.py --slots 4")
    written = ["results.json", "results.md", "results.parquet"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == written
    rows = parquet.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    runs = [run for of in report.comparison.runs.values() for run in of]
    whole = [row for row in rows if row["slo_class"] == "all"]
    assert [row["goodput_tps"] for row in whole] == [run.metrics.goodput_tps for run in runs]
    first = next(row for row in rows if row["slo_class"] == "coding")
    p95 = runs[0].metrics.by_class["coding"].tpot_s.p95
    assert first["tpot_s_p95"] == p95 or np.isnan(p95)
    values = json.loads((tmp_path / "out" / "results.json").read_text())
    assert values["versions"]["hardware"]["cores"] >= 1
    assert values["verdict"] == report.verdict
    assert (values["served"], values["command"]) == ({"slots": 4}, "python evaluate.py --slots 4")
