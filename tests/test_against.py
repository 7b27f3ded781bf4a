"""The gate: what is worse is found, what is not is left alone, and other tests are not compared."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import UserError
from eval.against import Scored, changes, of_comparison, read_scored, told
from eval.statistics import difference_of_means

ROOT = Path(__file__).resolve().parents[1]
TEST = "steady load, 10 s each"


def scored(values: list[float], first: int = 0, cell: str = "", test: str = TEST) -> Scored:
    of = {(cell, first + i): value for i, value in enumerate(values)}
    return Scored(test, "runs/before", {"chain": {"attainment": of, "goodput": dict(of)}})


def found(now: Scored, before: Scored) -> list[Any]:
    return changes(now, before, np.random.default_rng(0))


def test_the_same_seeds_are_paired_and_a_small_loss_is_found() -> None:
    hard = np.random.default_rng(1).normal(0.5, 0.2, 10)
    lost = found(scored((hard - 0.02).tolist()), scored(hard.tolist()))
    assert all(change.paired and change.is_worse for change in lost)
    assert "chain is worse on attainment: -0.0200" in told(lost, scored([]))
    gained = found(scored((hard + 0.02).tolist()), scored(hard.tolist()))
    assert not any(change.is_worse for change in gained)
    assert told(gained, scored([])) == "no controller got worse than in runs/before: chain"


def test_other_seeds_are_set_apart_by_their_means() -> None:
    rng = np.random.default_rng(2)
    before, now = rng.normal(0.5, 0.1, 20).tolist(), rng.normal(0.5, 0.1, 20).tolist()
    alike = found(scored(now, first=100), scored(before))
    assert not any(change.paired or change.is_worse for change in alike)
    lower = found(scored([value - 0.3 for value in now], first=100), scored(before))
    assert all(change.is_worse for change in lower)


def test_a_difference_of_means_covers_as_often_as_it_says() -> None:
    rng, covered = np.random.default_rng(3), 0
    for _ in range(200):
        ours = [rng.normal(1.0, 1.0, 8), rng.normal(5.0, 1.0, 8)]
        theirs = [rng.normal(0.0, 3.0, 6), rng.normal(5.0, 1.0, 12)]
        interval = difference_of_means(ours, theirs, rng, draws=300)
        covered += interval.low <= 0.5 <= interval.high
    assert 181 <= covered <= 199


def test_a_difference_of_single_values_shows_nothing() -> None:
    rng = np.random.default_rng(0)
    one = difference_of_means([np.ones(1)], [np.zeros(5)], rng)
    assert (one.mean, one.high) == (1.0, np.inf)
    alike = difference_of_means([np.ones(3)], [np.zeros(3)], rng)
    assert (alike.low, alike.high) == (1.0, 1.0)
    with pytest.raises(ValueError, match="the same ones"):
        difference_of_means([], [], rng)


def test_a_class_without_objective_leaves_nothing_to_compare() -> None:
    now = scored([float("nan")] * 3)
    assert found(now, now) == []
    assert "no request had an objective" in told([], now)


def test_other_tests_and_other_controllers_are_refused() -> None:
    with pytest.raises(UserError, match="of another test"):
        found(scored([1.0]), scored([1.0], test="another load, 10 s each"))
    nobody = Scored(TEST, "runs/before", {"eagle3": {}})
    with pytest.raises(UserError, match="none of these controllers; it has eagle3"):
        found(scored([1.0]), nobody)


def test_files_that_hold_no_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither matrix"):
        read_scored(tmp_path)
    path = tmp_path / "results.json"
    path.write_text('{"controllers": {"chain": {}}}')
    with pytest.raises(UserError, match="holds no finished comparison"):
        read_scored(path)
    path.write_text("{")
    with pytest.raises(UserError, match="cannot be read as results"):
        read_scored(tmp_path)
    (tmp_path / "matrix.json").write_text('{"part": "matrix", "schema": 1, "complete": false}')
    with pytest.raises(UserError, match="unfinished"):
        read_scored(tmp_path)


def test_the_command_exits_with_1_and_says_who_got_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate.py", "--policy", "chain(2)", "--seeds", "3", "--seconds", "8"]

    def run(*more: str) -> int:
        monkeypatch.setattr(sys, "argv", [*words, *more])
        try:
            runpy.run_path(str(ROOT / "evaluate.py"), run_name="__main__")
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    before = tmp_path / "before"
    assert run("--out", str(before)) == 0
    assert run("--out", str(tmp_path / "now"), "--against", str(before)) == 0
    assert "no controller got worse" in " ".join(capsys.readouterr().out.split())
    path = before / "results.json"
    data = json.loads(path.read_text())
    for one in data["controllers"]["chain(2)"]["runs"]:
        one["metrics"]["goodput_tps"] += 3.0
    path.write_text(json.dumps(data))
    assert of_comparison(data, str(path)).test == read_scored(tmp_path / "now").test
    assert run("--out", str(tmp_path / "now"), "--against", str(path)) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "chain(2) is worse on goodput: -3.0000 [-3.0000, -3.0000] (paired by seed)" in said
    assert "worse on attainment" not in said
