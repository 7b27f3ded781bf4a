"""`evaluate.py` from its options to its verdict: compare or go through a matrix, then against what.

Earlier results are read before anything is served, and set beside what will be: that they are of
another test, or of other controllers, is told at once. The judgement comes before the report, and
neither can keep the other back.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from train.evaluate_config import EvaluateConfig

if TYPE_CHECKING:
    from rich.console import Console

    from eval.scored import Scored


def evaluated(config: EvaluateConfig, console: Console) -> bool:
    """Serve, show and write; False where a controller is worse than in `--against`.

    Raises UserError.
    """
    from train.evaluation import report_line

    before = _before(config)
    if config.matrix is None:
        from train.comparison import evaluate

        results = evaluate(config, console) / "results.json"
    else:
        from train.matrix import evaluate_matrix

        results = evaluate_matrix(config, console) / "matrix.json"
    console.print(f"results     {results}", highlight=False, soft_wrap=True)
    try:
        return before is None or _as_good(results, before, config.seed, console)
    finally:
        line = report_line(results.parent)
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _before(config: EvaluateConfig) -> Scored | None:
    """The earlier results. Raises UserError where nothing can be compared with them."""
    if config.against is None:
        return None
    from eval.against import check_comparable
    from eval.contenders import named
    from eval.scored import matrix_test, read_scored
    from train.evaluation import departures, title_of

    before = read_scored(config.against)
    if config.matrix is None:
        test, served = title_of(config.serving, config.seconds), departures(config.serving)
    else:
        test, served = matrix_test(config.requests), {}
    check_comparable(test, served, list(named(config.policies)), before)
    return before


def _as_good(results: Path, before: Scored, seed: int, console: Console) -> bool:
    from eval.against import judged
    from eval.scored import read_scored

    found = judged(read_scored(results), before, np.random.default_rng(seed))
    console.print(f"against     {found.says}", highlight=False, markup=False)
    return not found.is_worse
