"""The gate: what is worse is found, what is not is left alone, and other tests are not compared."""

from __future__ import annotations

import io
import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from engine.errors import UserError
from eval.against import Judgement, judged
from eval.scored import Scored, of_comparison, read_scored
from eval.statistics import difference_of_means
from train import judging
from train.config import Serving
from train.evaluate_config import EvaluateConfig

ROOT = Path(__file__).resolve().parents[1]
TEST = "steady load, 10 s each"
NAN = float("nan")


def scored(values: list[float], first: int = 0, cell: str = "", test: str = TEST) -> Scored:
    of = {(cell, first + i): value for i, value in enumerate(values)}
    return Scored(test, "runs/before", {"chain": {"attainment": of, "goodput": dict(of)}})


def of_cells(cells: dict[str, list[float]], first: int = 0, **of: Any) -> Scored:
    """A matrix: by cell, whose name begins with its load, the value of every seed."""
    values = {(c, first + i): v for c, row in cells.items() for i, v in enumerate(row)}
    places = {cell: {"load": cell.split()[0]} for cell in cells}
    figures = {"chain": {"attainment": values, "goodput": dict(values)}}
    return Scored(TEST, "runs/before", figures, places, **of)


def found(now: Scored, before: Scored) -> Judgement:
    return judged(now, before, np.random.default_rng(0))


def test_the_same_seeds_are_paired_and_a_small_loss_is_found() -> None:
    hard = np.random.default_rng(1).normal(0.5, 0.2, 10)
    lost = found(scored((hard - 0.02).tolist()), scored(hard.tolist()))
    assert all(change.paired and change.is_worse for change in lost.changes)
    assert lost.is_worse and "chain is worse on attainment: -0.0200" in lost.says
    gained = found(scored((hard + 0.02).tolist()), scored(hard.tolist()))
    assert not gained.is_worse
    assert gained.says == "no controller got worse than in runs/before: chain"


def test_other_seeds_are_set_apart_by_their_means() -> None:
    rng = np.random.default_rng(2)
    before, now = rng.normal(0.5, 0.1, 20).tolist(), rng.normal(0.5, 0.1, 20).tolist()
    alike = found(scored(now, first=100), scored(before))
    assert not any(change.paired or change.is_worse for change in alike.changes)
    lower = found(scored([value - 0.3 for value in now], first=100), scored(before))
    assert all(change.is_worse for change in lower.changes)


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
    now = scored([NAN] * 3)
    with pytest.raises(UserError, match="nothing can be said of chain"):
        found(now, now)
    now.of["chain"]["goodput"] = {("", i): 1.0 for i in range(3)}
    judgement = found(now, now)
    assert [change.metric for change in judgement.changes] == ["goodput"]
    assert judgement.says.endswith(": chain; could not be judged: chain on attainment")


def test_who_raises_where_it_had_scores_is_worse() -> None:
    before = of_cells({"0.3 a": [1.0, 1.0], "1.3 b": [0.5, 0.5]})
    part = of_cells(
        {"0.3 a": [1.0, 1.0], "1.3 b": [NAN, NAN]}, faults={"chain": {"1.3 b": "KeyError:\n3"}}
    )
    judgement = found(part, before)
    assert judgement.is_worse and not any(change.is_worse for change in judgement.changes)
    said = "chain raises now in 1 of 2 cells where it had scores (KeyError: 3)"
    assert judgement.says == said
    nowhere = of_cells(
        {cell: [NAN, NAN] for cell in part.regimes},
        faults={"chain": dict.fromkeys(part.regimes, "KeyError: 3")},
    )
    assert found(nowhere, before).is_worse
    assert "raises now in 2 of 2 cells" in found(nowhere, before).says
    again = found(part, part)  # it raised there before
    assert not again.is_worse and again.changes
    assert again.unjudged == ["chain on attainment at load 1.3", "chain on goodput at load 1.3"]


def test_a_controller_that_is_not_served_any_more_is_named() -> None:
    before = scored([0.5, 0.6])
    before.of["eagle3"] = before.of["chain"]
    judgement = found(scored([0.5, 0.6]), before)
    assert judgement.says.endswith("runs/before: chain; there and not served now: eagle3")


def test_a_regime_without_a_common_cell_is_named_and_the_others_are_judged() -> None:
    before = of_cells({"0.3 a": [1.0, 0.9], "1.3 b": [0.5, 0.6]})
    now = of_cells({"0.3 c": [1.0, 0.9], "1.3 b": [0.5, 0.6]}, first=9)
    judgement = found(now, before)
    assert {change.regime for change in judgement.changes} == {"", "load 1.3"}
    assert "chain on attainment at load 0.3" in judgement.unjudged
    with pytest.raises(UserError, match="nothing can be said of chain, as no cell has 2 seeds"):
        found(of_cells({"0.3 c": [1.0, 0.9]}), before)


def test_what_can_show_nothing_is_refused_and_not_passed() -> None:
    two, one = scored([0.5, 0.6]), scored([0.5])
    with pytest.raises(UserError, match="has one seed, which shows no interval"):
        found(two, one)
    with pytest.raises(UserError, match="nothing can be said of chain"):
        found(one, two)
    with pytest.raises(UserError, match="one seed shows no interval"):
        EvaluateConfig(policy=("chain(2)",), seeds=1, against=Path("runs/before")).check()


@pytest.mark.parametrize("first", [0, 100])
def test_a_cell_of_one_seed_does_not_blind_the_others(first: int) -> None:
    before = of_cells({"0.3 a": [0.9, 0.8, 0.85], "0.3 b": [0.5, 0.6]})
    now = of_cells({"0.3 a": [0.1, 0.05, 0.1], "0.3 b": [0.5]}, first)
    judgement = found(now, before)
    assert judgement.is_worse and all(change.is_worse for change in judgement.changes)


def test_other_tests_and_other_controllers_are_refused() -> None:
    with pytest.raises(UserError, match="of another test"):
        found(scored([1.0]), scored([1.0], test="another load, 10 s each"))
    one = replace(scored([1.0, 1.0]), served={"slots": 4})
    with pytest.raises(UserError, match=r"with other --slots \(the usual one; here 4\)"):
        found(one, scored([1.0, 1.0]))
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
    path.write_text('{"controllers": {}, "title": "steady load, 3 paired seeds"}')
    with pytest.raises(UserError, match="does not say with which options it was served"):
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
    monkeypatch.setattr("train.evaluation.load_server", None)  # told before anything is loaded
    capsys.readouterr()
    assert run("--slots", "4", "--against", str(path)) == 2
    assert "with other --slots (the usual one; here 4)" in capsys.readouterr().err
    assert run("--seconds", "9", "--against", str(path)) == 2
    assert "of another test" in capsys.readouterr().err
    words[2] = "chain(3)"
    assert run("--against", str(path)) == 2
    assert "none of these controllers; it has chain(2)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        {"profile": Path("a")},
        {"recording": Path("a")},
        {"model": "a"},
        {"drafter": "prompt-lookup"},
        {"max_tokens": 40},
        {"prompt_tokens": 40},
        {"order": "edf"},
        {"overload": "reject"},
        {"slots": 4},
        {"power_cap_watts": 100.0},
    ],
)
def test_every_option_of_serving_tells_one_test_from_another(options: dict[str, Any]) -> None:
    from train.evaluation import departures

    usual, other = Serving(workload="steady"), Serving(workload="steady", **options)
    served = departures(other)
    assert departures(usual) == {"workload": "steady"} == json.loads(json.dumps(departures(usual)))
    assert json.loads(json.dumps(served)) == served and len(served) == 2


def test_the_judgement_comes_before_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def as_good(*_: Any) -> bool:
        order.append("judged")
        return False

    monkeypatch.setattr("train.matrix.evaluate_matrix", lambda *_: tmp_path)
    monkeypatch.setattr(judging, "_before", lambda _: scored([1.0, 1.0]))
    monkeypatch.setattr(judging, "_as_good", as_good)

    def reported(_: Path) -> str:
        order.append("reported")
        return "report      here"

    monkeypatch.setattr("train.evaluation.report_line", reported)
    console = Console(file=io.StringIO())
    assert not judging.evaluated(EvaluateConfig(matrix="small"), console)
    assert order == ["judged", "reported"]

    def cannot(*_: Any) -> bool:
        raise UserError("nothing can be said")

    monkeypatch.setattr(judging, "_as_good", cannot)
    with pytest.raises(UserError, match="nothing can be said"):
        judging.evaluated(EvaluateConfig(matrix="small"), console)
    assert order == ["judged", "reported", "reported"]
