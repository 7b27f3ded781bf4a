"""Measure every figure promised for the card: `python -m benchmarks.gpu --help` says how.

What can be proven without a card is measured anywhere; the rest says that the hardware is missing.
`python -m benchmarks.gpu_check` does far more on a machine that has one.
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.command import ROOT, run, selected
from benchmarks.figures import Bar, Figure
from engine.errors import UserError
from train.command_line import parse, run_command

if TYPE_CHECKING:
    from benchmarks.bench import Bench

FIGURES: tuple[Figure, ...] = (
    Figure(
        "episodes",
        "random schedules on the interpreter whose text is not the CPU backend's",
        Bar("≤", 0, "of 200"),
        "benchmarks.gpu_proofs:episodes",
    ),
    Figure(
        "properties",
        "masks, page tables, graph tiers: properties that fail in 1,000 cases and more of each",
        Bar("≤", 0),
        "benchmarks.gpu_proofs:properties",
    ),
    Figure(
        "signatures",
        "calls that the installed FlashInfer's signatures do not take",
        Bar("≤", 0),
        "benchmarks.gpu_proofs:signatures",
    ),
    Figure(
        "card_floor",
        "on a card, 8B shapes, batch 1: one-token step ÷ reading the weights once",
        Bar("≤", 1.25),
        "benchmarks.gpu_card:step_floor",
    ),
    Figure(
        "card_tree",
        "on a card, batch 1: verification of a tree of 64 nodes ÷ of one token",
        Bar("≤", 1.3),
        "benchmarks.gpu_card:tree_verification",
    ),
    Figure(
        "card_overhead",
        "on a card, batch 32: share of a step in which no kernel runs",
        Bar("≤", 5, "%"),
        "benchmarks.gpu_card:overhead",
    ),
)


@dataclass(frozen=True)
class GpuConfig:
    """Measure every figure promised for the card, print each against its bar, write them as JSON.

    Without a card the last three are excused. Rows of earlier runs stay in the file until measured
    again.
    """

    check: bool = False
    """Exit 1 when a bar is missed or a figure unmeasured; missing hardware alone excuses one."""
    quick: bool = False
    """Shorter runs, every figure all the same."""
    only: tuple[str, ...] = ()
    """Figures to measure by name or beginning (episodes, card, card_tree, …)."""
    out: Path | None = None
    """Results; none: benchmarks/results/gpu.json, or gpu-quick.json with --quick."""

    @property
    def results(self) -> Path:
        """Where the results go."""
        name = "gpu-quick.json" if self.quick else "gpu.json"
        return self.out or ROOT / "benchmarks" / "results" / name


def main() -> None:
    """Parse, measure, judge; exits 1 when `--check` asks and a figure does not pass."""
    config = parse(GpuConfig, sys.argv[1:], "python -m benchmarks.gpu")
    chosen = selected(FIGURES, config.only)
    from benchmarks.results import Results
    from benchmarks.show import Show

    results = Results.load(config.results)
    with closing(new_bench(config.quick)) as bench:
        table = run(chosen, FIGURES, bench, results, Show.on_this_terminal())
    if config.check and not all(row.passes for row in table):
        sys.exit(1)


def new_bench(quick: bool) -> Bench:
    """The bench on random networks of 8B shapes; made when a figure of the card asks for them."""
    from benchmarks.bench import Bench
    from benchmarks.fresh_clone import Clones
    from benchmarks.gpu_card import random_8b

    def nothing(*_: object) -> Any:
        raise UserError("random networks have no prompts and no reference")

    return Bench(random_8b, nothing, nothing, Clones(ROOT, reuse=True), quick=quick)


if __name__ == "__main__":
    run_command(main)
