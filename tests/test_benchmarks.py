"""The benchmark's table, its file and its exit code.

How the figures are worked out is in test_benchmark_measures.py and test_benchmark_clones.py.
"""

import dataclasses
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks import command, spine
from benchmarks.bench import Bench
from benchmarks.figures import Bar, Figure, MissingHardwareError, Result, judged, unmeasured
from benchmarks.fresh_clone import Clones
from benchmarks.results import Results
from benchmarks.show import Show
from engine.errors import UserError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def bench() -> Bench:
    """A quick bench without networks or prompts."""

    def nothing(*_: object) -> Any:
        raise UserError("this figure needs no networks")

    return Bench(nothing, nothing, nothing, Clones(ROOT), quick=True)


# -- figures, bars and rows ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bar", "value", "holds"),
    [
        (Bar("≥", 3.1), 3.1, True),
        (Bar("≥", 3.1), 3.09, False),
        (Bar("<", 12, "min"), 12.0, False),
        (Bar("≤", 5, "%"), 5.0, True),
        (Bar("≤", 5, "%"), float("nan"), False),
    ],
)
def test_a_bar_is_kept_or_missed(bar: Bar, value: float, holds: bool) -> None:
    assert bar.holds(value) is holds


def test_status_of_a_row() -> None:
    figure = Figure("f", "title", Bar("≤", 2.5, "ms", "≤ 7 % of a step"), "m:f")
    assert str(figure.bar) == "≤ 2.5 ms, or ≤ 7 % of a step"
    assert judged(figure, Result(2.0, "2 ms")).status == "holds"
    assert judged(figure, Result(3.0, "3 ms")).status == "missed"
    assert judged(figure, Result(3.0, "3 ms", meets_alternative=True)).status == "holds"
    broken = judged(figure, Result(2.0, "2 ms", note="a note", broken="a test failed"))
    assert (broken.status, broken.note) == ("missed", "a test failed. a note")
    barless = dataclasses.replace(figure, bar=None)
    assert judged(barless, Result(9.0, "9")).status == "reported"
    assert not unmeasured(figure, "no data").passes
    assert unmeasured(figure, "one core", excused=True).passes


def test_the_issues_bars_are_all_there() -> None:
    bars = {figure.name: str(figure.bar) for figure in spine.FIGURES if figure.bar}
    assert bars == {
        "make_train": "< 12 min",
        "make_test": "< 8 min",
        "acceptance_gsm8k": "≥ 3.1",
        "acceptance_humaneval": "≥ 2.6",
        "acceptance_mt_bench": "≥ 2.2",
        "acceptance_alpaca": "≥ 2.2",
        "acceptance_average": "≥ 2.4",
        "batch1": "≥ 1.4",
        "transformers": "≥ 1.5",
        "batch8": "≥ 1.2",
        "draft_step": "≤ 2.5 ms, or ≤ 7 % of a one-token target step",
        "overhead": "≤ 5 %",
    }


def test_only_takes_names_and_beginnings() -> None:
    def names(*only: str) -> list[str]:
        return [figure.name for figure in command.selected(spine.FIGURES, only)]

    assert names() == [figure.name for figure in spine.FIGURES]
    assert names("overhead", "make") == ["make_train", "make_test", "overhead"]
    assert names("acceptance_alpaca") == ["acceptance_alpaca", "acceptance_average"]
    assert len(names("acceptance")) == 6
    with pytest.raises(UserError, match="did you mean batch8"):
        names("batch9")


# -- the command, its table and its file -----------------------------------------------------------


def good(bench: Bench, argument: str) -> Result:
    """Measured above its bar."""
    return Result(2.0, "2.00", note=argument, raw={"x": np.float64(2), "y": float("nan")})


def poor(bench: Bench, argument: str) -> Result:
    """Measured below its bar."""
    return Result(0.5, "0.50")


def lacking(bench: Bench, argument: str) -> Result:
    """No such hardware."""
    raise MissingHardwareError("no such hardware")


def blind(bench: Bench, argument: str) -> Result:
    """No data."""
    raise UserError("no data")


def figures(*names: str) -> tuple[Figure, ...]:
    """Figures measured by the functions above."""
    return tuple(
        Figure(name, f"figure {name}", Bar("≥", 1), f"tests.test_benchmarks:{name}", "a note")
        for name in names
    )


def run_main(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, of: tuple[Figure, ...], *words: str
) -> int:
    """Exit code of the command with other figures and a tiny bench."""
    monkeypatch.setattr(spine, "FIGURES", of)
    monkeypatch.setattr(command, "new_bench", lambda config: bench)
    monkeypatch.setattr(sys, "argv", ["spine.py", *words])
    try:
        spine.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("good",), 0),
        (("good", "lacking"), 0),
        (("good", "poor"), 1),
        (("good", "blind"), 1),
    ],
)
def test_check_exits_1_for_what_is_missed_or_unmeasured(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    names: tuple[str, ...],
    code: int,
) -> None:
    out = str(tmp_path / "spine.json")
    assert run_main(bench, monkeypatch, figures(*names), "--check", "--out", out) == code
    assert run_main(bench, monkeypatch, figures(*names), "--out", out) == 0


def test_a_figure_never_measured_exits_1(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("--check", "--out", str(tmp_path / "spine.json"))
    of = (*figures("good"), *figures("lacking"))
    assert run_main(bench, monkeypatch, of, *words, "--only", "good") == 1
    assert run_main(bench, monkeypatch, of, *words, "--only", "lacking") == 0  # good is in the file


def test_rows_stream_to_a_pipe_and_the_file_keeps_them(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "deep" / "spine.json"
    run_main(bench, monkeypatch, figures("good", "poor", "blind"), "--out", str(out))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "| figure | value | bar | holds |",
        "| --- | --- | --- | --- |",
        "| figure good | 2.00 | ≥ 1 | yes |",
        "| figure poor | 0.50 | ≥ 1 | NO |",
        "| figure blind | – | ≥ 1 | NO, unmeasured |",
    ]
    assert any("figure blind (quick): no data" in line for line in lines)
    assert lines[-1] == f"3 figures: 1 missed, 1 unmeasured. Results: {out}"
    data = json.loads(out.read_text())
    row = data["figures"]["good"]
    assert row["raw"] == {"x": 2.0, "y": None}
    assert data["runs"][row["run"]]["versions"]["hardware"]["cores"] >= 1
    assert data["runs"][row["run"]]["command"][0] == "spine.py"
    assert [p.name for p in out.parent.iterdir()] == ["spine.json"]


def test_a_stopped_run_keeps_what_it_has(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "spine.json"
    of = figures("good", "poor")
    monkeypatch.setitem(globals(), "poor", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_main(bench, monkeypatch, of, "--out", str(out))
    assert list(Results.load(out).rows) == ["good"]


def test_a_later_run_replaces_only_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "spine.json"
    one, two = (judged(f, Result(2.0, "2")) for f in figures("good", "poor"))
    first = Results.load(path)
    first.add(one, "monday", {"versions": 1})
    first.add(two, "monday", {"versions": 1})
    later = Results.load(path)
    later.add(dataclasses.replace(two, value="3"), "tuesday", {"versions": 2})
    merged = Results.load(path)
    assert {n: (r.run, r.value) for n, r in merged.rows.items()} == {
        "good": ("monday", "2"),
        "poor": ("tuesday", "3"),
    }
    later.add(one, "tuesday", {"versions": 2})
    assert list(Results.load(path).runs) == ["tuesday"]  # nothing comes from Monday any more


@pytest.mark.parametrize("text", ["", "[]", '{"format": 99}', '{"format": 1, "figures": {"a": 3}}'])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "spine.json"
    path.write_text(text)
    with pytest.raises(UserError, match="holds no results"):
        Results.load(path)
    assert path.read_text() == text


def test_a_terminal_gets_a_drawn_table(bench: Bench, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    show = Show(console, Console(file=io.StringIO()))
    of = figures("good", "poor")
    command.run(of, of, bench, Results(tmp_path / "x.json"), show)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "─" in text
    assert text.count("figure good") >= 2  # as it came, and in the table


def test_help_is_light() -> None:
    probe = (
        "import runpy, sys; sys.argv = ['spine', '--help']\n"
        "try: runpy.run_module('benchmarks.spine', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "print('LOADED', *sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    text, _, loaded = done.stdout.partition("LOADED")
    assert "--only" in text
    assert not {"torch", "numba", "transformers", "scipy"} & set(loaded.split())
