"""`evaluate.py` from its options to its verdict: compare or go through a matrix, then against what.

Earlier results are read before anything is served, so that what is wrong with them is told at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from train.evaluate_config import EvaluateConfig

if TYPE_CHECKING:
    from rich.console import Console

    from eval.against import Scored


def evaluated(config: EvaluateConfig, console: Console) -> bool:
    """Serve, show and write; False where a controller is worse than in `--against`.

    Raises UserError.
    """
    from eval.against import read_scored

    before = None if config.against is None else read_scored(config.against)
    if config.matrix is None:
        from train.evaluation import evaluate

        out = evaluate(config, console)
        _tell(out, "results.json", console)
    else:
        from train.matrix import evaluate_matrix

        out = evaluate_matrix(config, console)
        _tell(out, "matrix.json", console)
        _report(out, console)
    return before is None or _as_good(out, before, config.seed, console)


def _tell(out: Path, name: str, console: Console) -> None:
    """Where things are."""
    console.print(f"results     {out / name}", highlight=False, soft_wrap=True)


def _report(out: Path, console: Console) -> None:
    """Write the page for people beside a matrix."""
    from eval.report import write_report

    _tell(write_report(out).parent, "report.html", console)


def _as_good(out: Path, before: Scored, seed: int, console: Console) -> bool:
    from eval.against import changes, read_scored, told

    found = changes(read_scored(out), before, np.random.default_rng(seed))
    console.print(f"against     {told(found, before)}", highlight=False, markup=False)
    return not any(change.is_worse for change in found)
