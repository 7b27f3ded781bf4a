"""What tuning is worth: `tune.py --policy adaptivespec` over its defaults, as its own test has it.

The study is short and stated here; its test serves winner and defaults on held-out seeds and texts.
"""

from __future__ import annotations

from typing import Any

from benchmarks.bench import Bench
from benchmarks.figures import Result
from benchmarks.learning_runs import studied

POLICY = "adaptivespec"
STUDY = ("--trials", "40", "--seeds", "8", "--seconds", "40", "--held-out-seeds", "20")
QUICK_STUDY = ("--trials", "3", "--seeds", "2", "--seconds", "15", "--held-out-seeds", "3")


def gain(bench: Bench, _: str) -> Result:
    """Score, SLO-valid tokens a second less 8 for each violation, that tuning adds."""
    return of_study(studied(bench, POLICY, QUICK_STUDY if bench.quick else STUDY))


def of_study(results: dict[str, Any]) -> Result:
    """From results.json. Where no trial beat the defaults, nothing was tested."""
    best = results["best"]["controller"]
    if not results["held_out"]:
        return Result(0.0, "nothing beat the defaults", broken="no difference shown")
    tested = results["held_out"][0]
    mean, low, high = (tested["gain"][key] for key in ("mean", "low", "high"))
    is_shown = low is not None and low > 0
    bounds = "" if low is None or high is None else f" [{low:+.1f}, {high:+.1f}]"
    return Result(
        mean,
        f"{mean:+.1f}{bounds} {tested['unit']}",
        note=f"{best}; {tested['gain']['seeds']} held-out runs of shifting load, "
        f"{len(results['trials'])} trials, Wilcoxon's p {tested['wilcoxon_p']:.2g}",
        raw={"best": results["best"], "held_out": tested},
        broken="" if is_shown else "no difference shown",
    )
