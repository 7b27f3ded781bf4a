"""The paired runner on a tiny live engine, and what the table says about its result."""

import io
import json
from collections.abc import Callable

import numpy as np
import pytest
from rich.console import Console

from engine.classes import DEFAULT_CLASSES
from engine.loop import Engine, EngineSettings
from engine.protocol import Controller, Outcome, View
from engine.request import Request
from engine.tiny import tiny_server
from eval import metrics, runner, table
from eval.runner import Comparison, Episode, Run
from policies.registry import make

MakeEngine = Callable[[list[Request]], Engine]


def requests(seed: int) -> list[Request]:
    rng = np.random.default_rng(seed)
    return [Request(i, i % 3, rng.integers(0, 64, 6).tolist(), 8, 0.001 * i) for i in range(4)]


def episode(seed: int) -> Episode:
    return Episode(seed, lambda: requests(seed))


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
