"""The controllers' page: its account of figures 8 to 11, its pictures, and how it links them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import adaserve_sweeps
from benchmarks.bench import Bench
from benchmarks.controllers import FIGURES
from benchmarks.controllers_page import PAGE
from benchmarks.controllers_pictures import PICTURES
from benchmarks.figures import Result, judged
from benchmarks.fresh_clone import Clones
from benchmarks.results import Results
from benchmarks.results_page import write_page
from benchmarks.sweeps_account import account, line, reasons

STAMP = {"versions": {"revision": "abc", "hardware": {"processor": "a chip", "cores": 2}}}


def point(ours: list[int], ratio: tuple[float, float, float] | None, most_gain: float) -> Any:
    """A point at which vllm-spec(8) is the best baseline."""
    keys = ("mean", "low", "high")
    return {
        "fewest": "vllm-spec(8)",
        "violations": None if ratio is None else dict(zip(keys, ratio, strict=True)),
        "counts": {"vllm-spec(8)": [100, 110], "adaserve": ours},
        "most_goodput": "vllm-spec(8)",
        "goodput": {"value": 1.1, "low": 1.0, "high": 1.2},
        "most_gain": most_gain,
        "attainment": {"vllm-spec(8)": 80.0, "adaserve": 97.5},
        "objectives_s": {"coding": 0.024, "chat": 0.05},
        "by_class": {
            label: {
                "coding": {"met": coding, "tpot_s": tpot_s},
                "chat": {"met": 99.0, "tpot_s": 0.03},
            }
            for label, coding, tpot_s in (("vllm-spec(8)", 71.0, 0.023), ("adaserve", 52.0, 0.028))
        },
    }


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Three rows that pictures are made of."""
    raw: dict[str, dict[str, Any]] = {
        "fig14_first": {
            "contenders": {
                "vllm": {"attainment": {"mean": 49.8}, "text": "49.8 ± 0.4"},
                "ours": {"attainment": {"mean": 90.0}, "text": "90.0 ± 0.2"},
            },
            "published": {"vllm": 52.6},
        },
        "sweeps_ahead": {
            "points": {
                # Without an upper end: null in the file.
                "fig. 10 a": point([20, 22], (5.0, 3.0, float("inf")), 1.25),
                "fig. 11 b": point([1, 0], None, 1.25),
            }
        },
        "frontier_batch1": {
            "points": {"0.9": {"kept": 0.94, "speed": {"value": 1.3}, "let_through": 0.1}}
        },
        "noise_floor": {"kept": 0.96},
    }
    found = Results(tmp_path / "results.json")
    for figure in FIGURES:
        if figure.name in raw:
            row = judged(figure, Result(1.0, "1", raw=raw[figure.name]))
            found.add(dataclasses.replace(row), "2026-01-01T00:00:00", STAMP)
    return found


def test_the_best_point_is_read_from_the_file(results: Results) -> None:
    rows = Results.load(results.path).rows
    bench = Bench(lambda: None, lambda *_: [], lambda _: None, Clones(Path()), rows=rows)  # type: ignore[arg-type, return-value]
    best = adaserve_sweeps.best(bench, "violations")
    assert best.text == "5.00 [3.00, inf]" and best.note.startswith("at fig. 10 a")
    assert not best.broken


def test_a_point_says_what_stands_between() -> None:
    few = reasons(point([1, 2], None, 1.25))
    assert few == [
        "AdaServe misses too few for a ratio",
        "vllm-spec(8) meets so many that no controller could have 1.9 times its goodput",
    ]
    behind = reasons(point([300, 300], (0.6, 0.5, 0.7), 2.5))
    assert behind == [
        "AdaServe misses more: of coding it meets 52 % against 71 %, at 28.0 ms a token in the "
        "median against 23.0, 24 promised"
    ]
    assert reasons(point([20, 20], (5.0, 4.0, 6.0), 1.25))[0].startswith("vllm-spec(8) meets")
    assert reasons(point([70, 70], (1.5, 1.2, 1.8), 2.5)) == [
        "vllm-spec(8) misses fewer than the paper's baselines",
        "AdaServe's own misses keep goodput below",
    ]
    assert "210 over 40: 5.00 [4.00, 6.00]" in line("x", point([20, 20], (5.0, 4.0, 6.0), 1.25))


def test_nothing_is_told_or_drawn_of_what_is_not_measured(tmp_path: Path) -> None:
    rows = {row.name: row for row in Results(tmp_path / "none.json").table(FIGURES)}
    assert account(rows["sweeps_ahead"]) == []
    assert [draw(rows) for draw in PICTURES.values()] == [None] * len(PICTURES)


def test_a_page_in_results_links_pictures_beside_it(results: Results, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "results" / "controllers.md"
    page.parent.mkdir(parents=True)
    write_page(PAGE, page, results.path, FIGURES)
    text = page.read_text()
    for name in PICTURES:
        assert f"](../pictures/{name})" in text
        drawn = (tmp_path / "docs" / "pictures" / name).read_text()
        assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert "210 over 42: 5.00 [3.00, inf]" in text
    assert "| fig. 11 b | 97.5 % | 80.0 %, vllm-spec(8) | 210 over 1 |" in text
    assert "prefers-color-scheme:dark" in drawn and "bfloat16 alone" in drawn
