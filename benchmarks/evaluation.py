"""What the evaluation comes to here: `python -m benchmarks.evaluation` measures all of it.

Which figures there are and what they promise stands here, how they are measured in the modules that
they name. `--write` turns the results into the page for the documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.figures import Bar, Figure
from benchmarks.results_page import Page, PagedConfig, command_with_page
from train.command_line import run_command

MATRIX, GATE = "benchmarks.evaluation_matrix", "benchmarks.evaluation_gate"

FIGURES: tuple[Figure, ...] = (
    Figure(
        "matrix_small",
        "evaluate.py --matrix small, 240 cells × 3 controllers, 2 processes",
        Bar("≤", 10, "min"),
        f"{MATRIX}:small",
    ),
    Figure(
        "matrix_full",
        "evaluate.py --matrix full, 5,280 cells × 12 controllers, by measured rate, killed −9 once",
        Bar("≤", 24, "h"),
        f"{MATRIX}:full",
    ),
    Figure(
        "adaptation",
        "adaptation test, 8 controllers × 7 disturbances × 10 seeds",
        Bar("≤", 15, "min"),
        "benchmarks.evaluation_adaptation:measured",
    ),
    Figure(
        "frontier",
        "past capacity: demand up to which 90 % is shown to be met without an overload policy",
        None,
        "benchmarks.evaluation_frontier:measured",
    ),
    Figure(
        "lossless",
        "controllers that change what the target says and own to no margin, on live",
        Bar("≤", 0),
        "benchmarks.evaluation_lossless:measured",
    ),
    Figure(
        "self_compared",
        "a controller against itself on disjoint seeds: called worse, in 100 runs",
        Bar("≤", 10),
        f"{GATE}:self_compared",
    ),
    Figure(
        "slower_found",
        "the same engine with every step 5 % slower: found worse, in 10 runs",
        Bar("≥", 9),
        f"{GATE}:slower_found",
    ),
    Figure(
        "report",
        "report.html opens, without console error, request or 8 MB",
        Bar("<", 2, "s"),
        "benchmarks.evaluation_report:measured",
    ),
)


@dataclass(frozen=True)
class EvaluationBenchConfig(PagedConfig):
    """Measure every figure of the evaluation, print each against its bar, write them as JSON.

    Use an otherwise idle machine. Rows of earlier runs stay in the file until measured again.
    """

    name: ClassVar[str] = "evaluation"


def main() -> None:
    """Parse, measure, judge, and write the page whatever the verdict."""

    def page() -> Page:
        from benchmarks.evaluation_page import PAGE

        return PAGE

    command_with_page(FIGURES, EvaluationBenchConfig, page)


if __name__ == "__main__":
    run_command(main)
