"""docs/results/evaluation.md from the file that `python -m benchmarks.evaluation` wrote."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.evaluation_tables import after_a_change, best_by_regime, kept_texts, past_capacity
from benchmarks.figures import Row
from benchmarks.results_page import Page, Section

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
        "Every controller through every disturbance, on the same arrivals as the switching oracle. "
        "Regret is SLO-valid tokens behind the oracle's, in percent of them: below zero is better "
        "than an oracle that changes to each stretch's best fixed tree at once. All run with their "
        "default constants: nothing was tuned to this world, and some suffer from it.",
    ),
    Section(
        "Past what can be served",
        ("frontier",),
        "Demand from 0.5 to 2 × capacity under each overload policy. The table is of the highest "
        "demand; the sentences under it say who pays there, of the first controller.",
    ),
    Section(
        "Whether the text is still the target's",
        ("lossless",),
        "The pair that ships, on the live engine: the same prompts under the same seeds as "
        "ordinary decoding, and first tokens drawn against the target's own law, enumerated.",
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
        "One with matrix, adaptation and frontier, from quick runs of each, opened in headless "
        "Chromium.",
    ),
)


def table_of(row: Row) -> Sequence[str]:
    """What a figure's row found, for those that found more than a number."""
    tables = {
        "matrix_small": best_by_regime,
        "adaptation": after_a_change,
        "frontier": past_capacity,
        "lossless": kept_texts,
    }
    return tables[row.name](row.raw) if row.raw and row.name in tables else ()


PAGE = Page(
    title="The evaluation, measured",
    benchmark="evaluation",
    see="[evaluation](../evaluation.md) says what each figure means",
    sections=SECTIONS,
    pictures={},
    table_of=table_of,
)
