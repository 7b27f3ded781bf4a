"""The trained controller against slack-priced, tuned AdaServe and best-fixed on held-out seeds.

Five trainings, the 20 held-out seeds of shifting load at the load of `learning_contest`. Ratios are
of interquartile means, intervals over trainings and held-out seeds. Whatever else is asked of the
trained controller is asked of these runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.learning_contest import Contest, found
from benchmarks.learning_intervals import Estimate, ratio
from benchmarks.learning_runs import revisions, trainings
from benchmarks.learning_serving import Table, compared, episode_s, figure

TRAINED = ("--policy", "ppo", "--decisions", "500000", "--minutes", "60")
"""How the subject is trained, at the contest's load: in decisions, so that a busy machine changes
nothing."""
TRAININGS, QUICK_TRAININGS = 5, 1
SEEDS, QUICK_SEEDS = 20, 2
OURS, SLACK_PRICED, ADASERVE, BEST_FIXED = "trained", "slack-priced", "adaserve", "best-fixed"
OTHERS = (SLACK_PRICED, ADASERVE, BEST_FIXED)
RUN = "trained_violations"
"""The figure that trains and serves; the others are read from its row."""


def subjects(bench: Bench, contest: Contest) -> list[Path]:
    """The run folders of all trainings, which are trained where they are not there yet."""
    options = (*TRAINED, "--load", f"{contest.load:g}")
    count = QUICK_TRAININGS if bench.quick else TRAININGS
    return trainings(bench, options, range(count))


def against_adaserve(bench: Bench, _: str) -> Result:
    """Violations of the trained controller over tuned AdaServe's; trains and serves."""
    contest = found(bench)
    runs = subjects(bench, contest)
    specs = {f"{OURS} {i}": str(run) for i, run in enumerate(runs)}
    specs |= {
        SLACK_PRICED: SLACK_PRICED,
        ADASERVE: contest.adaserve,
        BEST_FIXED: contest.best_fixed,
    }
    seeds = QUICK_SEEDS if bench.quick else SEEDS
    table = compared(bench, contest.setting(episode_s(bench)), specs, seeds, "trained")
    raw = told(table, len(runs), bench.rng())
    raw |= {"trained_as": list(TRAINED), "contest": contest._asdict(), "runs": revisions(runs)}
    return of_ratio(raw, "violations")


def from_the_run(bench: Bench, name: str) -> Result:
    """The other rows: goodput over AdaServe's, or slack-priced as a whole."""
    row = bench.rows.get(RUN)
    if row is None or "ratios" not in row.raw:
        raise UnmeasuredError(f"it is read from {RUN}, which has not been measured")
    raw = dict(row.raw)
    return over_slack_priced(raw) if name == SLACK_PRICED else of_ratio(raw, name)


def told(table: Table, trainings: int, rng: np.random.Generator) -> dict[str, Any]:
    """Ratios to everybody, and every value that they are made of."""
    ratios: dict[str, dict[str, Any]] = {}
    for other in OTHERS:
        ratios[other] = {}
        for name in ("violations", "goodput"):
            ours = np.stack([figure(table, f"{OURS} {i}", name) for i in range(trainings)])
            ratios[other][name] = ratio(ours, figure(table, other, name), rng)._asdict()
    attained = {label: float(np.mean(of["attainment"])) for label, of in table.items()}
    return {"ratios": ratios, "attainment": attained, "table": table, "trainings": trainings}


def of_ratio(raw: dict[str, Any], name: str) -> Result:
    """The ratio to AdaServe of "violations" or "goodput"; not held where 1 is not excluded."""
    is_fewer = name == "violations"
    estimate = _estimate(raw, ADASERVE, name)
    shown = estimate.high < 1 if is_fewer else estimate.low > 1
    others = "; ".join(
        f"over {other}'s {_estimate(raw, other, name).written()}"
        for other in OTHERS
        if other != ADASERVE
    )
    attained = ", ".join(f"{label} {share:.1f}" for label, share in raw["attainment"].items())
    seeds = len(raw["table"][ADASERVE][name])
    return Result(
        estimate.value,
        f"{estimate.written()}×",
        note=f"{raw['trainings']} trainings, {seeds} held-out seeds; {others}; attained, %: "
        f"{attained}",
        raw=raw if is_fewer else {},
        broken="" if shown else "no difference from AdaServe shown",
    )


def over_slack_priced(raw: dict[str, Any]) -> Result:
    """The smaller of the lower bounds of what is gained, percent: in violations and in goodput."""
    missed, good = (_estimate(raw, SLACK_PRICED, name) for name in ("violations", "goodput"))
    # Fewer violations are a gain, so the ends change places.
    fewer = missed.value, missed.high, missed.low
    gains = {
        "fewer violations": Estimate(*(100 * (1 - end) for end in fewer)),
        "more goodput": Estimate(*(100 * (end - 1) for end in good)),
    }
    lowest = min(gain.low for gain in gains.values())
    better = any(gain.low > 0 for gain in gains.values())
    return Result(
        lowest,
        f"{lowest:+.1f} %",
        note="; ".join(f"{name} {gain.written(1, '+')} %" for name, gain in gains.items()),
        raw={name: gain._asdict() for name, gain in gains.items()},
        broken="" if better else "shown to be better on neither",
    )


def _estimate(raw: dict[str, Any], other: str, name: str) -> Estimate:
    """As it stands in the row, where what is not finite is null."""
    of = raw["ratios"][other][name]
    value, low, high = (of[key] for key in Estimate._fields)
    return Estimate(
        float("nan") if value is None else value,
        -np.inf if low is None else low,
        np.inf if high is None else high,
    )
