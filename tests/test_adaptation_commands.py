"""The adaptation test and the frontier as typed: parts written, tables told, slips in a sentence.

Runs are short and in this process.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from engine.errors import UserError
from eval import kept_runs
from eval.adaptation_test import command as adaptation_command
from eval.adaptation_test import telling as adaptation_telling
from eval.adaptation_test import whole as adaptation_whole
from eval.contenders import marked, named
from eval.frontier import command as frontier_command
from eval.frontier import telling as frontier_telling
from eval.frontier import whole as frontier_whole
from eval.kept_runs import Kept
from eval.parts import read_part
from eval.replay_world import World, made_with

SEVEN = 7


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes are begun for runs of a tenth of the length."""

    def made(do: Callable[[Any], Any], tasks: Iterable[Any], _: int) -> Iterator[tuple[Any, Any]]:
        return ((task, do(task)) for task in tasks)

    monkeypatch.setattr(kept_runs, "each_made", made)
    monkeypatch.setattr(adaptation_whole, "QUICK_SCALE", 0.1)


def told(show: Callable[[Any, Console], None], summary: Any) -> str:
    """What a terminal of 200 columns is shown."""
    console = Console(file=io.StringIO(), width=200)
    show(summary, console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_the_whole_adaptation_test_writes_its_part(tmp_path: Path) -> None:
    options = adaptation_whole.Options(("chain(2)", "best-fixed"), 1, quick=True, out=tmp_path)
    said: list[str] = []
    summary = adaptation_whole.tested(options, said.append)
    part = read_part(tmp_path, "adaptation")
    assert part.summary == summary and summary["seeds"] == [1000]
    changes = [(row["disturbance"], row["controller"], row["change"]) for row in part.rows]
    assert len(changes) == len(set(changes)) == SEVEN * 3 * 2  # the oracle among the controllers
    assert not summary["failed"] and len(summary["figures"]) == SEVEN + 1
    for name, of in summary["disturbances"].items():
        courses = summary["courses"][name]
        assert len(courses["controllers"]["chain(2)"]["valid_tps"]) == len(courses["at_s"])
        assert all(stretch["oracle_tree"] for stretch in of["stretches"])
        assert summary["best_fixed"][name][0].startswith("best-fixed is ")
    assert not (tmp_path / "adaptation.unfinished").exists()
    text = told(adaptation_telling.show, summary)
    assert "memory squeeze" in text and "no difference shown" in text
    assert "fewer than 10 seeds" in text


def test_the_whole_frontier_writes_its_part(tmp_path: Path) -> None:
    options = frontier_whole.Options(
        ("chain(1)",), ("none", "reject"), (2.0, 1.0), seeds=2, seconds=10.0, out=tmp_path
    )
    summary = frontier_whole.swept(options, lambda _: None)
    part = read_part(tmp_path, "frontier")
    assert part.summary == summary and summary["loads"] == [1.0, 2.0]
    assert len(part.rows) == 2 * 2 * 2 * 4  # policies, demands, seeds; three classes and all
    assert [cell["load"] for cell in summary["cells"]["chain(1)"]["reject"]] == [1.0, 2.0]
    text = told(frontier_telling.show, summary)
    assert "reject against none at 2 ×" in text and "chain(1), reject at 2 ×" in text


@pytest.mark.parametrize(
    ("main", "typed", "says"),
    [
        (adaptation_command.main, ["--seeds", "0"], "--seeds 0: expected a whole number"),
        (adaptation_command.main, ["--load", "9"], "--load 9: expected a factor"),
        (adaptation_command.main, ["--policy", "adaserv"], "did you mean adaserve"),
        (frontier_command.main, ["--overload", "refuse"], "expected one of none, reject"),
        (frontier_command.main, ["--policy", "chain", "chain"], "name each controller once"),
    ],
)
def test_a_slip_is_told_in_a_sentence(
    main: Callable[[list[str]], int],
    typed: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(typed) == 2
    told_to = capsys.readouterr().err
    assert says in told_to and told_to.count("\n") == 1


def test_a_lossy_contender_is_marked_and_none_is_by_default() -> None:
    given = ["adaptivespec", "adaptivespec-tree"]
    assert list(marked(named(given))) == ["adaptivespec (lossy)", "adaptivespec-tree"]
    defaults = [*adaptation_whole.POLICIES, *frontier_whole.POLICIES]
    assert all(of.lossless for spec in set(defaults) for of in named([spec]).values())


def test_kept_runs_of_another_export_are_not_taken_up(tmp_path: Path) -> None:
    folder = tmp_path / "ppo"
    folder.mkdir()
    manifest = folder / "manifest.json"
    manifest.write_text("{}")
    world, specs = World(), {"ppo": str(folder)}
    kept = tmp_path / "adaptation.unfinished"
    Kept(kept, made_with(world, specs, scale=0.5))
    Kept(kept, made_with(world, specs, scale=0.5))
    manifest.write_text('{"trained": "again"}')
    with pytest.raises(UserError, match="made with other exports; repeat"):
        Kept(kept, made_with(world, specs, scale=0.5))
    head = made_with(world, {"it": "chain(2)"}, scale=0.5)
    assert {"revision", "python", "packages", "server", "policies"} <= head.keys()
    assert head["exports"] == {}
