"""The papers' figures: measured rows beside published values, and what is missing says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import UserError
from eval.figures import __main__ as command
from eval.figures import adaserve, others
from eval.figures.course import PAPERS, write_figures
from eval.figures.measured import Measured, read_measured
from eval.figures.published import FIG14
from eval.report.palette import PUBLISHED, Palette

NOTHING = Measured(Path("nowhere"), {})


def interval(value: float) -> dict[str, float]:
    return {"mean": value, "value": value, "low": value - 1, "high": value + 1}


def rows() -> dict[str, Any]:
    """As the benchmarks write them, two contenders and two points."""
    points = {
        f"fig. 8/9 rps{rate}_ol256": {
            "attainment": {"vllm": 40.0, "adaserve": 95.0},
            "violations": interval(5.0) if rate > 3 else None,
            "goodput": interval(1.1),
        }
        for rate in (2.4, 4.6)
    }
    contenders = {n: {"attainment": interval(FIG14[n] + 1), "text": "x"} for n in FIG14}
    frontier = {"1": {"speed": interval(4.0), "kept": 1.0}}
    raw = {
        "sweeps_ahead": {"points": points},
        "fig14_first": {"contenders": contenders},
        "selection_share": {"selecting_s": [0.001, 0.003], "iteration_s": [1.0, 1.0]},
        "frontier_batch1": {"points": frontier},
        "noise_floor": {"kept": 0.33},
        "adaptivespec_batch1": {"over_best_fixed": {"lossless": interval(1.0)}},
        "learning_to_draft": {"best_fixed": "chain(2)", "interval_95": [1.0, 1.2]},
    }
    return {name: {"raw": of, "number": 1.1, "run": "2026"} for name, of in raw.items()}


def test_adaserves_figures_stand_beside_the_published(tmp_path: Path) -> None:
    charts = adaserve.charts(Measured(tmp_path, rows()), Palette())
    by_title = {chart.title.split(":")[0]: chart for chart in charts}
    assert list(by_title) == [f"Figure {i}" for i in range(8, 16)]
    peaks = by_title["Figure 14"]
    (stated,) = [t for t in peaks.data if t["name"] == PUBLISHED]
    here = [t for t in peaks.data if t["name"] != PUBLISHED]
    # A contender's own mark and the published one stand in the same row.
    assert {t["y"][0]: t["x"][0] - 1 for t in here} == dict(
        zip(stated["y"], stated["x"], strict=True)
    )
    assert by_title["Figure 15"].data[0]["x"] == [pytest.approx(0.2)]
    assert not by_title["Figure 12"].data and "not measured" in by_title["Figure 12"].label


def test_a_point_with_too_few_violations_is_told_and_not_drawn() -> None:
    charts = adaserve.charts(Measured(Path(), rows()), Palette())
    ratio = charts[1]
    assert ratio.data[0]["x"] == [4.6]
    assert "1 points with fewer than 30" in ratio.note


@pytest.mark.parametrize("paper", PAPERS)
def test_what_is_not_measured_says_so(
    paper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTGYM_SHARED", str(tmp_path))
    for chart in PAPERS[paper][2](NOTHING, Palette()):
        assert not chart.data and chart.note.startswith("Not measured: ")
    assert len(write_figures(paper, NOTHING, tmp_path)) == 1
    text = (tmp_path / "figures.html").read_text(encoding="utf-8")
    assert text.count('<p class="missing">not measured</p>') == len(
        PAPERS[paper][2](NOTHING, Palette())
    )


def test_the_other_papers_are_drawn_from_their_rows() -> None:
    found = Measured(Path(), rows())
    margins, missing, modes, _ = others.adaptivespec(found, Palette())
    assert margins.data[0]["x"] == [100.0] and not missing.data
    assert len(modes.data) == 1
    gain, decision = others.learning_to_draft(found, Palette())
    assert [t["x"] for t in gain.data] == [[1.1], [1.05, 1.36]] and not decision.data


def test_pictures_are_written_and_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = Measured(tmp_path, rows())
    first = {p: p.read_bytes() for p in write_figures("adaptivespec", found, tmp_path)}
    assert {p.suffix for p in first} == {".html", ".svg", ".png"}
    assert all(p.read_bytes() == content for p, content in first.items())
    again = {p: p.read_bytes() for p in write_figures("adaptivespec", found, tmp_path)}
    assert {p: c for p, c in again.items() if p.suffix == ".svg"} == {
        p: c for p, c in first.items() if p.suffix == ".svg"
    }


def test_results_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        read_measured(tmp_path / "gone")
    (tmp_path / "learning.json").write_text(json.dumps({"format": 99}), encoding="utf-8")
    with pytest.raises(UserError, match="format 99"):
        read_measured(tmp_path)
    assert command.main(["adaserve", "--results", str(tmp_path), "--out", str(tmp_path)]) == 2
