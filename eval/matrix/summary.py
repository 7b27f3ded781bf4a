"""matrix.json: which controller for which regime, what it rests on, and what to know about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eval.matrix.axes import AXES, UNVARIED
from eval.matrix.pieces import Plan, forget_pieces, read_pieces, served_by
from eval.matrix.regimes import judged, loads_by_target, regimes
from eval.matrix.scores import Scores, scores_of
from eval.matrix.tails import COST, by_target, worst
from eval.parts import write_part

if TYPE_CHECKING:
    import pyarrow

FIGURES = {
    "attainment": "share of the requests with an objective that met all of theirs",
    "goodput": "tokens a second of attaining requests, in multiples of the cell's capacity",
}


def write_matrix(
    plan: Plan, folder: Path, command: str, rng: np.random.Generator
) -> dict[str, Any]:
    """Both files of the part from all pieces, which go; the summary. Raises UserError."""
    rows = read_pieces(plan, folder)
    scores = scores_of(rows)
    summary = summary_of(plan, rows, scores, rng)
    seeds = sorted({seed for of_cell in scores.seeds for seed in of_cell})
    write_part(folder, "matrix", rows, summary, seeds, command, made_with=served_by(folder))
    forget_pieces(folder)
    return summary


def summary_of(
    plan: Plan, rows: pyarrow.Table, scores: Scores, rng: np.random.Generator
) -> dict[str, Any]:
    """As plain data; `docs/evaluation.md` says what stands where."""
    everywhere = np.ones(len(scores.cells), np.bool_)
    return {
        "size": plan.size,
        "cells": len(scores.cells),
        "controllers": list(scores.controllers),
        "seeds_a_cell": plan.work.seeds,
        "requests_a_run": plan.work.requests,
        "axes": {axis: scores.values(axis) for axis in AXES},
        "figures": FIGURES,
        "costs": COST,
        "overall": judged(scores, everywhere, rng),
        "regimes": regimes(scores, rng),
        "loads_by_target": loads_by_target(scores, rng),
        "by_target": by_target(rows, rng),
        "worst": worst(scores, rng),
        "faults": scores.faults,
        "notes": notes(plan, scores),
    }


def notes(plan: Plan, scores: Scores) -> list[str]:
    """What the matrix rests on, in sentences."""
    pairs = dict.fromkeys(cell.pair for cell in plan.chosen)
    found = [
        f"{len(scores.cells)} cells, {plan.work.seeds} seeds each of about {plan.work.requests} "
        "requests; every controller serves the same arrivals, held out from training",
        "interquartile mean [95 % interval] over cells and seeds, seeds resampled within cells; "
        "the verdicts of a regime hold together at 95 %",
        "goodput in multiples of each cell's capacity, the rate at which the best fixed tree "
        "drains it; time, power and memory are modelled throughout",
        "every engine runs up to 16 requests at a time, fewer than a card has room for",
        *(pair.told for pair in pairs),
        *UNVARIED,
    ]
    if scores.faults:
        who = sorted({fault["controller"] for fault in scores.faults})
        found.append(
            f"{', '.join(who)} raised in {len(scores.faults)} cells, which are marked and left out "
            "of its figures and comparisons; all others stand"
        )
    return found
