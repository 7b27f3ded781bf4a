"""docs/results/evaluation.md from the file that `python -m benchmarks.evaluation` wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import Row
from benchmarks.results_page import Page, Section
from eval.writing import markdown_table

SECTIONS = (
    Section(
        "The matrix",
        ("matrix",),
        "The commands as they are typed, on a machine that swept nothing before. The full matrix "
        "is served for some minutes, killed, taken up, and its hours told from the rate since.",
    ),
    Section(
        "The adaptation test",
        ("adaptation",),
        "Every controller through every disturbance, on the same arrivals as the switching oracle.",
    ),
    Section(
        "Whether the gate can be trusted",
        ("self_compared", "slower_found"),
        "The verdict of `evaluate.py --against`, over runs of ten held-out seeds of a minute. One "
        "that cries wolf is switched off, one that sees nothing is not worth its minutes.",
    ),
    Section(
        "The report",
        ("report",),
        "The report of a small matrix, opened in headless Chromium.",
    ),
)
METRICS = ("attainment", "goodput")


def table_of(row: Row) -> Sequence[str]:
    """Of the small matrix, who may be called best where."""
    if row.name != "matrix_small" or not row.raw:
        return ()
    regimes = [("everywhere", row.raw["overall"])]
    regimes += [(f"{of['axis']} {of['value']}", of) for of in row.raw["regimes"]]
    return markdown_table(
        ("regime", *METRICS), [(name, *(_cell(of, m) for m in METRICS)) for name, of in regimes]
    )


def _cell(regime: Mapping[str, Any], metric: str) -> str:
    """The best, its figure, and whom no difference is shown to."""
    verdict = regime["verdicts"][metric]
    if verdict["best"] is None:
        return "–"
    figure = regime["controllers"][verdict["best"]][metric]
    value = f"{figure['value']:.2f} [{figure['low']:.2f}, {figure['high']:.2f}]"
    rest = f"; no difference shown to {', '.join(verdict['level_with'])}"
    return f"{verdict['best']} {value}{rest if verdict['level_with'] else ''}"


PAGE = Page(
    title="The evaluation, measured",
    benchmark="evaluation",
    see="[evaluation](../evaluation.md) says what each figure means",
    sections=SECTIONS,
    pictures={},
    table_of=table_of,
)
