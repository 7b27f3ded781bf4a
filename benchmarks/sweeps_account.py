"""Where AdaServe's figures 8 to 11 come out as published here and where not, point by point.

Made of the measured row alone: what AdaServe and the best baseline attain, the two ratios, and what
keeps a ratio from the published 4.3 and 1.9.
"""

from __future__ import annotations

from typing import Any

from benchmarks.figures import Row

VIOLATIONS, GOODPUT = 4.3, 1.9
HEAD = (
    "| point | AdaServe attains | best baseline attains | violations, theirs over ours | goodput, "
    "ours over theirs (most there could be) | what stands between |",
    "| --- | --- | --- | --- | --- | --- |",
)


def number(stored: float | None) -> float:
    """A bound or a time out of the file of results, which has null for what has no end."""
    return float("inf") if stored is None else stored


def account(row: Row) -> list[str]:
    """Markdown lines of the table; none before it is measured."""
    points = row.raw.get("points")
    return [] if not points else [*HEAD, *(line(name, p) for name, p in points.items())]


def line(name: str, p: dict[str, Any]) -> str:
    """One point."""
    ratio, gain, fewest = p["violations"], p["goodput"], p["fewest"]
    shown = f"{sum(p['counts'][fewest]):.0f} over {sum(p['counts']['adaserve']):.0f}"
    if ratio is not None:
        shown += f": {ratio['mean']:.2f} [{ratio['low']:.2f}, {number(ratio['high']):.2f}]"
    cells = (
        name,
        f"{p['attainment']['adaserve']:.1f} %",
        f"{p['attainment'][fewest]:.1f} %, {fewest}",
        shown,
        f"{gain['value']:.2f} ({p['most_gain']:.2f})",
        "; ".join(reasons(p)) or "nothing: both are reached",
    )
    return "| " + " | ".join(cells) + " |"


def reasons(p: dict[str, Any]) -> list[str]:
    """Why the point is short of the published ratios, as far as its own numbers tell."""
    ratio, gain, found = p["violations"], p["goodput"], []
    if ratio is None:
        found.append("AdaServe misses too few for a ratio")
    elif number(ratio["high"]) < 1:
        found.append(f"AdaServe misses more: {slower(p)}")
    elif ratio["low"] <= 1:
        found.append("the interval of violations holds 1")
    elif ratio["mean"] < VIOLATIONS:
        found.append(f"{p['fewest']} misses fewer than the paper's baselines")
    if gain["value"] < GOODPUT:
        if p["most_gain"] < GOODPUT:
            found.append(
                f"{p['most_goodput']} meets so many that no controller could have {GOODPUT:g} "
                "times its goodput"
            )
        elif ratio is None or number(ratio["high"]) >= 1:
            found.append("AdaServe's own misses keep goodput below")
    return found


def slower(p: dict[str, Any]) -> str:
    """The classes of which AdaServe meets fewer than the best baseline, and their pace."""
    ours, theirs = p["by_class"]["adaserve"], p["by_class"][p["fewest"]]
    told = [
        f"of {name} it meets {ours[name]['met']:.0f} % against {theirs[name]['met']:.0f} %, at "
        f"{1e3 * number(ours[name]['tpot_s']):.1f} ms a token in the median against "
        f"{1e3 * number(theirs[name]['tpot_s']):.1f}, {1e3 * objective_s:.0f} promised"
        for name, objective_s in p["objectives_s"].items()
        if ours[name]["met"] < theirs[name]["met"]
    ]
    return ", ".join(told)
