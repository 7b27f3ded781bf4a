"""Measure every figure that the spine promises: `python -m benchmarks.spine --help` says how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.command import BenchmarkConfig, command
from benchmarks.figures import Bar, Figure
from train.command_line import run_command

SETS = "gsm8k humaneval"  # maths and coding
MEASURED_SETS = {
    "gsm8k": ("GSM8K", Bar("≥", 3.1)),
    "humaneval": ("HumanEval", Bar("≥", 2.6)),
    "mt_bench": ("MT-bench", Bar("≥", 2.2)),
    "alpaca": ("Alpaca", Bar("≥", 2.2)),
    "summarization": ("summarization", None),
}
ALL_SETS = " ".join(f"acceptance_{name}" for name in MEASURED_SETS)

FIGURES: tuple[Figure, ...] = (
    Figure(
        "make_train",
        "make train in a fresh clone",
        Bar("<", 12, "min"),
        "benchmarks.fresh_clone:make_train",
    ),
    Figure(
        "make_test",
        "make test in a fresh clone",
        Bar("<", 8, "min"),
        "benchmarks.fresh_clone:make_test",
    ),
    *(
        Figure(
            f"acceptance_{name}",
            f"tokens per iteration, {title}",
            bar,
            "benchmarks.acceptance:measure",
            name,
        )
        for name, (title, bar) in MEASURED_SETS.items()
    ),
    Figure(
        "acceptance_average",
        "tokens per iteration, average of the five",
        Bar("≥", 2.4),
        "benchmarks.acceptance:average",
        ALL_SETS,
    ),
    Figure(
        "batch1",
        "batch 1: best fixed tree ÷ autoregressive",
        Bar("≥", 1.4),
        "benchmarks.speed:batch1",
        SETS,
    ),
    Figure(
        "transformers",
        "batch 1: autoregressive ÷ transformers generate",
        Bar("≥", 1.5),
        "benchmarks.speed:transformers",
        SETS,
    ),
    Figure(
        "batch8",
        "batch 8: best fixed tree ÷ autoregressive",
        Bar("≥", 1.2),
        "benchmarks.speed:batch8",
        SETS,
    ),
    Figure(
        "draft_step",
        "draft step, batch 1",
        Bar("≤", 2.5, "ms", "≤ 7 % of a one-token target step"),
        "benchmarks.overhead:draft_step",
        "gsm8k",
    ),
    Figure(
        "overhead",
        "engine's own work outside the networks, batch 16",
        Bar("≤", 5, "%"),
        "benchmarks.overhead:overhead",
        SETS,
    ),
)


@dataclass(frozen=True)
class SpineConfig(BenchmarkConfig):
    """Measure every figure of the spine, print each against its bar, write them as JSON.

    Use an otherwise idle machine. Rows of earlier runs stay in the file until measured again.
    """

    name: ClassVar[str] = "spine"


def main() -> None:
    """Parse, measure, judge."""
    command(FIGURES, SpineConfig)


if __name__ == "__main__":
    run_command(main)
