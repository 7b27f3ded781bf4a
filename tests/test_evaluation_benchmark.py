"""The evaluation benchmark: its figures and page, and its gate on few seeds."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import (
    evaluation_adaptation,
    evaluation_gate,
    evaluation_matrix,
    evaluation_page,
    evaluation_tables,
)
from benchmarks.bench import Bench
from benchmarks.evaluation import FIGURES
from benchmarks.evaluation_gate import judged, slower
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.figures import judged as row_of
from benchmarks.fresh_clone import Clones
from benchmarks.results import Results
from benchmarks.results_page import belongs, write_page
from engine.replay.server import ReplayConfig, ReplayServer
from eval.matrix.axes import Cell, cells_of
from eval.matrix.rows import fault_row, table
from eval.matrix.scores import scores_of
from models.model_cache import cache_root

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def bench() -> Bench:
    """Without networks or prompts."""

    def nothing(*_: object) -> Any:
        raise UnmeasuredError("this figure needs no networks")

    return Bench(nothing, nothing, nothing, Clones(ROOT), quick=True)


def test_the_issues_bars_are_all_there_and_every_figure_has_its_function() -> None:
    assert {figure.name: str(figure.bar) for figure in FIGURES} == {
        "matrix_small": "≤ 10 min",
        "matrix_full": "≤ 24 h",
        "adaptation": "≤ 15 min",
        "frontier": "None",
        "lossless": "≤ 0",
        "self_compared": "≤ 10",
        "slower_found": "≥ 9",
        "report": "< 2 s",
    }
    for figure in FIGURES:
        module, name = figure.measure.split(":")
        function = getattr(importlib.import_module(module), name)
        assert len(inspect.signature(function).parameters) == 2, figure.name


def test_every_figure_stands_on_the_page_once_with_the_winners(tmp_path: Path) -> None:
    for figure in FIGURES:
        where = sum(belongs(figure.name, section.only) for section in evaluation_page.SECTIONS)
        assert where == 1, figure.name
    figures = {"value": 0.9, "low": 0.85, "high": 0.95}
    regime = {
        "controllers": {"hedge": {"attainment": figures, "goodput": figures}},
        "verdicts": {
            "attainment": {"best": "hedge", "level_with": ["chain"]},
            "goodput": {"best": None, "level_with": []},
        },
    }
    raw = {"overall": regime, "regimes": [{"axis": "load", "value": "1.3", **regime}]}
    results = Results(tmp_path / "results.json")
    results.add(row_of(FIGURES[0], Result(4.0, "4.0 min", raw=raw)), "now", {"versions": {}})
    page = tmp_path / "docs" / "results" / "evaluation.md"
    write_page(evaluation_page.PAGE, page, results.path, FIGURES)
    text = page.read_text()
    said = "hedge 0.90 [0.85, 0.95]; no difference shown to chain"
    assert f"| everywhere | {said} | – |" in text and f"| load 1.3 | {said} | – |" in text
    assert "| 4.0 min | ≤ 10 min | yes |" in text


def test_the_pages_tables_say_who_and_with_what_interval() -> None:
    def regret(value: float) -> dict[str, float | None]:
        return {"value": value, "low": value - 1, "high": value + 1}

    nothing = dict.fromkeys((key for key, _, _ in evaluation_tables.OF_A_CHANGE), regret(2.0))
    unseen = {"value": None, "low": None, "high": None}
    raw: dict[str, Any] = {
        "figures": {
            "late": {**nothing, "regret": regret(9.0), "settling_s": unseen},
            "soon": {**nothing, "regret": regret(-3.0)},
        },
        "regret": {name: {"late": regret(9.0), "soon": regret(-3.0)} for name in ("all", "mix")},
        "titles": {"mix": "abrupt mix"},
        "verdicts": {"all": "all seven: soon has the least regret"},
    }
    lines = evaluation_tables.after_a_change(raw)
    assert lines[0] == "| regret, % | all seven | abrupt mix |"
    assert lines[2] == "| soon | -3 [-4, -2] | -3 [-4, -2] |"
    assert lines[-1] == "- all seven: soon has the least regret."
    assert any(line.startswith("| late | – |") for line in lines)

    of = dict.fromkeys((key for key, _, _ in evaluation_tables.PAST_CAPACITY), regret(5.0))
    row = {"controller": "it", "overload": "none", **of}
    lines = evaluation_tables.past_capacity({"most": 2.0, "rows": [row], "audit": ["it, none"]})
    assert lines[0].startswith("| at 2 × capacity | overload | attainment, % |")
    assert lines[2].startswith("| it | none | 5 [4, 6] |") and lines[-1] == "- it, none."


def test_a_slower_engine_takes_longer_and_promises_the_same() -> None:
    server = ReplayServer.load(ReplayConfig())
    longer = slower(server, 1.05)
    contexts = np.full(4, 100)
    step, other = (s.profile.step_s(3, 2, 6, contexts) for s in (server, longer))
    assert other == pytest.approx(1.05 * step)
    assert longer.unloaded_tpot_s == server.unloaded_tpot_s
    assert longer.decision_s == pytest.approx(1.05 * server.decision_s)


def test_the_gates_figures_count_who_is_called_worse(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_gate, "QUICK_SELF_RUNS", 2)
    monkeypatch.setattr(evaluation_gate, "QUICK_SLOWER_RUNS", 1)
    monkeypatch.setattr(evaluation_gate, "SECONDS", 30.0)
    alike = evaluation_gate.self_compared(bench, "")
    assert alike.value == 0.0 and alike.text == "0 of 2"
    found = evaluation_gate.slower_found(bench, "")
    assert found.raw["runs"] == 1 and "attainment falls by" in found.note
    same = [(seed, 0.5, 10.0) for seed in range(4)]
    assert not any(change.is_worse for change in judged(same, same, bench.rng()))


def test_a_pieces_cells_are_counted_by_the_plan(tmp_path: Path) -> None:
    folder = tmp_path / evaluation_matrix.FOLDER
    folder.mkdir()
    (folder / evaluation_matrix.PLAN).write_text('{"cells_a_piece": 4}')
    (folder / "00000.parquet").write_bytes(b"")
    assert evaluation_matrix._pieces(tmp_path) == 1
    assert evaluation_matrix._cells(tmp_path, 3) == 12


def test_served_rows_are_repeated_for_every_cell_of_the_matrix() -> None:
    cells = cells_of("small")
    rows = table([{**row, "requests": i} for i, row in enumerate(faults(cells[:2], "ab"))])
    found = evaluation_matrix.repeated(rows, cells)
    assert found.schema == rows.schema and found.num_rows == 2 * len(cells)
    scores = scores_of(found)
    assert list(scores.cells) == [cell.name for cell in cells]
    assert scores.controllers == ("a", "b")
    assert scores.values("load") == ["0.3", "0.55", "0.8", "1.05", "1.3"]
    assert found["requests"].to_pylist()[:6] == [0, 1, 2, 3, 0, 1]


def faults(cells: Sequence[Cell], names: str) -> list[dict[str, Any]]:
    """A row a cell and name, the shortest there is."""
    return [fault_row(cell, name, cell.seeds(1), "no") for cell in cells for name in names]


def test_the_adaptation_test_is_timed_on_an_empty_cache(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DRAFTGYM_CACHE", str(tmp_path))
    monkeypatch.setattr(evaluation_adaptation, "FOLDER", tmp_path / "runs")
    caches: list[Path] = []

    def tested(*_: object) -> dict[str, Any]:
        caches.append(cache_root())
        assert not list(caches[-1].iterdir())
        verdicts = {"all": {"says": "nothing could be judged"}}
        return {"seconds": 60.0, "disturbances": {}, "failed": [], "figures": {"all": {}},
                "verdicts": verdicts}  # fmt: skip

    monkeypatch.setattr(evaluation_adaptation, "tested", tested)
    assert evaluation_adaptation.measured(bench, "").value == 1.0
    evaluation_adaptation.measured(bench, "")
    assert len({*caches, tmp_path}) == 3 and cache_root() == tmp_path
