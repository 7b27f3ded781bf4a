"""The tables of docs/results/evaluation.md, each of what a benchmark's row keeps as `raw`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval.part_tables import figure_cell, known
from eval.writing import markdown_table

METRICS = ("attainment", "goodput")
OF_A_CHANGE = (
    ("settling_s", "settled after, median s", 0),
    ("not_settled", "not settled, %", 0),
    ("debt", "SLO debt, %", 1),
    ("violations", "misses in transition", 1),
    ("churn", "changes of plan a second", 2),
    ("attainment", "attainment, %", 1),
)
PAST_CAPACITY = (
    ("attainment", "attainment, %", 0),
    ("goodput_tps", "goodput, tokens/s", 0),
    ("jain", "Jain's index", 2),
    ("largest_queue_age_s", "queue age, s", 1),
    ("waste", "waste, %", 0),
)
Raw = Mapping[str, Any]


def best_by_regime(raw: Raw) -> list[str]:
    """Of a matrix, who may be called best where."""
    regimes = [("everywhere", raw["overall"])]
    regimes += [(f"{of['axis']} {of['value']}", of) for of in raw["regimes"]]
    return markdown_table(
        ("regime", *METRICS), [(name, *(_best(of, m) for m in METRICS)) for name, of in regimes]
    )


def after_a_change(raw: Raw) -> list[str]:
    """Regret by disturbance, then what a change costs, the least regret first."""
    by_name, figures = raw["regret"], raw["figures"]
    names = sorted(figures, key=lambda name: known(figures[name]["regret"]["value"]))
    titles = {"all": "all seven", **raw["titles"]}
    regret = markdown_table(
        ("regret, %", *titles.values()),
        [(name, *(figure_cell(by_name[of][name], 0) for of in titles)) for name in names],
    )
    costs = markdown_table(
        ("all seven", *(title for _, title, _ in OF_A_CHANGE)),
        [
            (name, *(figure_cell(figures[name][key], digits) for key, _, digits in OF_A_CHANGE))
            for name in names
        ],
    )
    said = [f"- {says}." for says in raw["verdicts"].values()]
    return [*regret, "", *costs, "", *said]


def past_capacity(raw: Raw) -> list[str]:
    """What every controller and overload policy comes to at the highest demand, and who pays."""
    rows = [
        (
            row["controller"],
            row["overload"],
            *(figure_cell(row[key], digits) for key, _, digits in PAST_CAPACITY),
        )
        for row in raw["rows"]
    ]
    head = (f"at {raw['most']:g} × capacity", "overload", *(title for _, title, _ in PAST_CAPACITY))
    return [*markdown_table(head, rows), "", *(f"- {says}." for says in raw["audit"])]


def kept_texts(raw: Raw) -> list[str]:
    """Of each controller and of the control, whether its texts are the target's."""
    proofs = {**raw["controllers"], raw["control"]["name"]: raw["control"]}
    return markdown_table(
        ("controller", "verdict", "tokens", "departures", "agreement, %", "chi-square p", "TV"),
        [
            (
                name,
                of["status"],
                f"{of['compared_tokens']:,}",
                f"{of['departures']} ({of['unexplained']} not by rounding)",
                figure_cell({key: 100 * value for key, value in of["agreement"].items()}, 1),
                f"{of['chi_square_p']:.3f}",
                f"{of['total_variation']:.3f}, chance {of['chance_variation']['low']:.3f} to "
                f"{of['chance_variation']['high']:.3f}",
            )
            for name, of in proofs.items()
        ],
    )


def _best(regime: Raw, metric: str) -> str:
    """The best, its figure, and whom no difference is shown to."""
    verdict = regime["verdicts"][metric]
    if verdict["best"] is None:
        return "–"
    figure = regime["controllers"][verdict["best"]][metric]
    value = f"{figure['value']:.2f} [{figure['low']:.2f}, {figure['high']:.2f}]"
    rest: Sequence[str] = verdict["level_with"]
    return f"{verdict['best']} {value}" + (
        f"; no difference shown to {', '.join(rest)}" if rest else ""
    )
