"""The matrix: cells, what their rows say, faults, pieces that are taken up, the command."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from engine.protocol import Controller, Plan, View
from engine.workload import FIRST_HELD_OUT_SEED, episode_generator
from eval.against import judged
from eval.contenders import engine_makers
from eval.matrix import pieces
from eval.matrix.axes import AXES, SMOLLM, Cell, cells_of
from eval.matrix.pieces import FOLDER, read_pieces, serve_all
from eval.matrix.pieces import Plan as MatrixPlan
from eval.matrix.serving import Work, served
from eval.matrix.world import world_of
from eval.metrics import attainment, percentiles
from eval.parts import read_part
from eval.runner import serve_recorded
from eval.scored import of_matrix
from policies.registry import make
from train.evaluate_config import EvaluateConfig

ROOT = Path(__file__).resolve().parents[1]
CELL = Cell(SMOLLM, "alike", 32, 32, 0.8, "poisson")
BURSTY = Cell(SMOLLM, "coding", 32, 32, 1.3, "spike")
WORK = Work(("chain(2)", "autoregressive"), 2, 6)


class Raising(Controller):
    """Ends with an error as soon as it is asked."""

    name = "raising"

    def plan(self, view: View) -> Plan:
        raise RuntimeError("it would not plan")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Pieces are served in this process, and noted."""
    seen: list[Any] = []

    def each_made(
        do: Callable[[Any], Any], tasks: Iterable[Any], _: int, stopped: Callable[[], bool]
    ) -> Iterator[tuple[Any, Any]]:
        for task in tasks:
            if stopped():
                return
            seen.append(task)
            yield task, do(task)

    monkeypatch.setattr(pieces, "each_made", each_made)
    return seen


def test_the_matrices_are_as_large_as_they_are_called() -> None:
    small, full = cells_of("small"), cells_of("full")
    assert (len(small), len(full)) == (240, 5280)
    assert len({cell.name for cell in full}) == len(full)
    assert all(len({cell.places[axis] for cell in small}) > 1 for axis in AXES)
    assert {cell.load for cell in full} == {round(0.3 + 0.1 * i, 1) for i in range(11)}


def test_no_two_cells_share_arrivals_and_all_are_held_out() -> None:
    seeds = [seed for cell in cells_of("full") for seed in cell.seeds(10)]
    assert len(set(seeds)) == len(seeds) and min(seeds) >= FIRST_HELD_OUT_SEED
    assert CELL.seeds(3) == CELL.seeds(5)[:3]


def test_a_cell_asks_for_what_it_is_called_and_its_load_is_of_its_capacity() -> None:
    world = world_of(BURSTY, 400)
    drawn = [world.draw(episode_generator(seed)) for seed in range(1000, 1004)]
    requests = [request for of_seed in drawn for request in of_seed]
    assert {len(request.prompt) for request in requests} == {32}
    assert max(request.max_tokens for request in requests) <= 32
    assert len(requests) / 4 == pytest.approx(400, rel=0.1)
    arriving_s = world.config.duration_s
    spiked = np.mean([0.4 < r.arrival_s / arriving_s < 0.5 for r in requests])
    assert spiked == pytest.approx(0.4 / 1.3, abs=0.05)  # four times the rate for a tenth
    rate = 400 / arriving_s / 1.3
    assert rate == pytest.approx(world.server.capacity_of(world.draw.asked), rel=1e-6)
    coding = np.mean([request.slo_class == 0 for request in requests])
    assert coding == pytest.approx(0.6, abs=0.06)


def test_a_cells_rows_say_what_its_requests_came_to() -> None:
    rows = served(CELL, WORK)
    together = {row["controller"]: row for row in rows if row["slo_class"] == "all"}
    assert list(together) == ["chain(2)", "autoregressive"]
    for name, row in together.items():
        classes = [r for r in rows if r["controller"] == name and r["slo_class"] != "all"]
        for count in ("requests", "violations", "output_tokens", "wasted_nodes"):
            assert row[count] == sum(of[count] for of in classes)
        met = sum(of["attainment"] * of["requests"] for of in classes)
        assert row["attainment"] == pytest.approx(met / row["requests"])
        assert row["goodput_tps"] == pytest.approx(np.mean(row["goodput_by_seed"]))
        assert row["goodput_of_capacity"] == pytest.approx(row["goodput_tps"] / row["capacity_tps"])
        assert row["completion_s_p50"] <= row["completion_s_p95"] <= row["completion_s_p99"]
        assert 0 < row["watts_p50"] <= row["watts_p99"] and row["kv_tokens_peak"] > 0
    assert together["autoregressive"]["rejected_nodes"] == 0 < together["chain(2)"]["waste_share"]


def test_who_raises_is_marked_and_the_rest_stands() -> None:
    work = Work(("tests.test_matrix:Raising", "autoregressive"), 2, 6)
    rows = served(CELL, work)
    (fault,) = [row for row in rows if row.get("fault")]
    assert (fault["controller"], fault["fault"]) == ("raising", "RuntimeError: it would not plan")
    alone = served(CELL, Work(("autoregressive",), 2, 6))
    assert [row for row in rows if not row.get("fault")] == alone


def test_a_matrix_that_was_cut_goes_on(
    tmp_path: Path, here: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "RUNS_A_PIECE", 2)  # a cell a piece
    plan = MatrixPlan("small", Work(WORK.policies, 1, 2), (CELL, BURSTY, CELL._replace(load=0.3)))
    stops = iter([False, True])
    assert not serve_all(plan, tmp_path, stopped=lambda: next(stops, True))
    (first,) = (tmp_path / FOLDER).glob("*.parquet")
    content, count = first.read_bytes(), len(here)
    with pytest.raises(UserError, match="2 of 3 pieces are missing"):
        read_pieces(plan, tmp_path)

    told: list[tuple[int, int]] = []
    assert serve_all(plan, tmp_path, lambda p: told.append((p.done, p.before)))
    assert len(here) == count + 2 and first.read_bytes() == content
    assert told == [(1, 1), (2, 1), (3, 1)]
    names = dict.fromkeys(read_pieces(plan, tmp_path)["cell"].to_pylist())
    assert list(names) == [cell.name for cell in plan.cells]  # not in the order of serving


def test_another_plan_and_another_version_are_refused(tmp_path: Path) -> None:
    plan = MatrixPlan("small", WORK, (CELL,))
    pieces.take_up(plan, tmp_path)
    pieces.take_up(plan, tmp_path)
    with pytest.raises(UserError, match="begun with other seeds"):
        pieces.take_up(MatrixPlan("small", Work(WORK.policies, 3, 6), (CELL,)), tmp_path)
    path = tmp_path / pieces.PLAN
    data = json.loads(path.read_text())
    data["versions"]["revision"] = "another"
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match="another version"):
        pieces.take_up(plan, tmp_path)
    path.write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        pieces.take_up(plan, tmp_path)


def test_pieces_without_a_plan_are_refused_and_none_are_left_by_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, folder = MatrixPlan("small", WORK, (CELL,)), tmp_path / FOLDER
    pieces.take_up(plan, folder)
    (folder / "00000.parquet").write_bytes(b"")

    def killed(path: Path, ignore_errors: bool = False) -> None:
        if path.is_dir():
            (path / pieces.PLAN).unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pieces.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            pieces.forget_pieces(tmp_path)
    assert not folder.exists()
    pieces.take_up(plan, folder)
    pieces.forget_pieces(tmp_path)  # with what the kill left
    assert not list(tmp_path.iterdir())

    folder.mkdir()
    (folder / "00000.parquet").write_bytes(b"")
    with pytest.raises(UserError, match=r"holds pieces without plan\.json"):
        pieces.take_up(plan, folder)


def command() -> int:
    """Exit code of evaluate.py, run in this process."""
    try:
        runpy.run_path(str(ROOT / "evaluate.py"), run_name="__main__")
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_the_command_writes_both_files_and_its_gate_finds_what_got_worse(
    tmp_path: Path,
    here: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pieces, "cells_of", lambda _: [CELL, BURSTY])
    out = tmp_path / "before"
    words = ["evaluate.py", "--matrix", "small", "--policy", "chain(2)", "autoregressive"]
    words += ["tests.test_matrix:Raising", "--requests", "6"]
    monkeypatch.setattr(sys, "argv", [*words, "--out", str(out)])
    assert command() == 0
    said = capsys.readouterr().out
    assert "2 cells × 3 controllers × 3 seeds" in said and "raised in 2 cells" in said
    written = ["matrix.json", "matrix.parquet", "report.html"]
    assert sorted(path.name for path in out.iterdir()) == written
    summary = read_part(out, "matrix").summary
    assert summary["complete"] and summary["command"].startswith("python evaluate.py --matrix")
    assert {of["controller"] for of in summary["faults"]} == {"raising"}
    assert summary["overall"]["controllers"]["raising"]["goodput"]["value"] is None
    assert {of["axis"] for of in summary["regimes"]} == {"mix", "load", "burst"}

    now = tmp_path / "now"
    monkeypatch.setattr(sys, "argv", [*words, "--against", str(out), "--out", str(now)])
    assert command() == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no controller got worse" in said and "could not be judged: raising on" in said
    assert said.index("no controller got worse") < said.index("report.html")

    before = of_matrix(out)
    assert before.faults["raising"].keys() == {CELL.name, BURSTY.name}
    goodput = before.of["chain(2)"]["goodput"]
    goodput.update({unit: value + 1.0 for unit, value in goodput.items()})
    found = judged(of_matrix(now), before, np.random.default_rng(0)).changes
    flagged = {(change.controller, change.metric) for change in found if change.is_worse}
    assert flagged == {("chain(2)", "goodput")}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seconds": 20.0}, "--seconds 20.0: has no meaning with --matrix small"),
        ({"policy": ("chain(2)",), "matrix": None, "requests": 9}, "has no meaning without"),
        ({"processes": 0}, "--processes 0: expected"),
    ],
)
def test_options_that_would_not_be_heeded_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        EvaluateConfig(**{"matrix": "small", **options}).check()


def test_a_row_is_what_the_metrics_make_of_all_its_requests() -> None:
    world, chain = world_of(CELL, 6), make("chain(2)")
    settings = replace(world.server.settings, horizon_s=world.seconds)
    maker = engine_makers(world.server, {"it": chain}, DEFAULT_CLASSES, settings)["it"]
    records = [
        serve_recorded("it", chain, seed, maker(world.draw(episode_generator(seed))))[1]
        for seed in CELL.seeds(2)
    ]
    pooled = [record for of_seed in records for record in of_seed]
    row = served(CELL, WORK)[0]
    assert (row["controller"], row["slo_class"]) == ("chain(2)", "all")
    assert row["attainment"] == attainment(pooled)
    assert row["attainment_by_seed"] == [attainment(of_seed) for of_seed in records]
    assert row["ttft_s_p95"] == percentiles(record.ttft_s for record in pooled).p95
