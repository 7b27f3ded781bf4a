"""Demand past what can be served: goodput and its price by overload policy, and who pays for it."""

from __future__ import annotations

from typing import Any

from eval.report.blocks import Block, Cell, Chart, Figure, Panels, Section, Table, Words
from eval.report.charts import Trace, layout, line, short
from eval.report.folder import Data
from eval.report.matrix import sentence
from eval.report.palette import Palette
from eval.report.tables import figure_cell, name_cell, words_cell

PRICES = (
    ("joules_per_valid_token", "Energy", "J per SLO-valid token"),
    ("waste", "Waste", "drafts in vain, %"),
)
AUDITED = (
    ("attainment", "attainment %", 0),
    ("rejected", "turned away %", 0),
    ("degraded", "degraded %", 0),
    ("starved", "starved %", 0),
    ("unfinished", "not done at the cut %", 0),
    ("largest_queue_age_s", "longest wait for a slot, s", 1),
    ("token_share", "of all tokens %", 0),
    ("device_share", "of the device's time %", 0),
)


def section(data: Data, palette: Palette) -> Section:
    """Goodput and price over demand."""
    names, policies = data["controllers"], data["overloads"]
    says = [sentence(data["verdicts"][c]["feasible"]["says"]) for c in names]
    policies_say = [
        sentence(f"{c}: " + "; ".join(of["says"] for of in policies_of.values()))
        for c in names
        if (policies_of := data["verdicts"][c]["policies"])
    ]
    blocks: list[Block] = [
        Words(says, tone="verdict"),
        Words(policies_say, is_list=True),
        Panels(
            [_over_demand(data, o, "goodput_tps", "goodput, tokens/s", palette) for o in policies],
            names,
            240,
            title="Goodput against demand, by overload policy",
        ),
        Panels(
            [_over_demand(data, o, "attainment", "objectives met, %", palette) for o in policies],
            names,
            240,
            title="Attainment against demand, by overload policy",
        ),
        Panels(
            [_price(data, *price, palette) for price in PRICES],
            names,
            380,
            title=f"What goodput costs as demand grows, overload policy {policies[0]}",
        ),
    ]
    return Section(
        "frontier",
        "Past what can be served",
        "Frontier",
        "Demand in multiples of capacity; bands are 95 % intervals over the seeds.",
        blocks,
    )


def audit(data: Data) -> Section:
    """By class, at the highest demand: who is turned away, degraded, starved, and who is served."""
    most = max(data["loads"])
    head = ["controller", "class", *(title for _, title, _ in AUDITED)]
    rows: list[list[Cell]] = []
    for policy in data["overloads"]:
        rows.append([words_cell(f"overload policy: {policy}")])
        for name in data["controllers"]:
            cell = max(data["cells"][name][policy], key=lambda c: c["load"])
            rows += [
                [name_cell(name), words_cell(c), *_class_cells(of)]
                for c, of in cell["classes"].items()
            ]
    first = data["controllers"][0]
    says = [sentence(w) for w in data["verdicts"][first].get("audit", {}).values()]
    starved = data["titles"]["class"]["starved"]
    return Section(
        "who-pays",
        "Who pays",
        "Audit",
        f"By class at {most:g} × capacity: who is turned away, degraded or starved, and who had "
        "the tokens and the device.",
        [
            Words([f"With {first}:"]),
            Words(says, is_list=True),
            Table(head, rows, note=f"Starved: {starved.removesuffix(', %')}."),
        ],
    )


def _class_cells(of: dict[str, Any]) -> list[Cell]:
    return [figure_cell(Figure.read(of[key]), digits) for key, _, digits in AUDITED]


def _over_demand(data: Data, policy: str, key: str, upward: str, palette: Palette) -> Chart:
    loads = [float(load) for load in data["loads"]]
    traces: list[Trace] = []
    told = []
    for name in data["controllers"]:
        figures = [Figure.read(cell["all"][key]) for cell in data["cells"][name][policy]]
        traces.extend(line(name, palette.look(name), loads, figures))
        told.append(f"{name} {', '.join(short(f.value) for f in figures)}")
    y = {"range": [0, 103]} if key == "attainment" else {"rangemode": "tozero"}
    return Chart(
        policy,
        traces,
        layout("demand, × capacity", yaxis=y),
        f"{upward} under {policy} at {', '.join(f'{x:g}' for x in loads)}: {'; '.join(told)}",
        230,
        upward=upward,
    )


def _price(data: Data, key: str, title: str, unit: str, palette: Palette) -> Chart:
    """Goodput over its price, a line through the demands of each controller."""
    policy = data["overloads"][0]
    traces: list[Trace] = []
    for name in data["controllers"]:
        priced = [
            (cell["load"], Figure.read(cell["all"][key]), Figure.read(cell["all"]["goodput_tps"]))
            for cell in data["cells"][name][policy]
        ]
        known = [(load, a, b) for load, a, b in priced if a.is_known and b.is_known]
        # Without intervals: a band along a curve that turns back would say nothing.
        bare = [Figure(b.value) for _, _, b in known]
        found = line(name, palette.look(name), [a.value for _, a, _ in known], bare)
        for trace in found:
            trace["text"] = [
                f"<b>{name}</b> at {load:g} ×<br>{short(b.value)} tokens/s at "
                f"{short(a.value)} {unit}"
                for load, a, b in known
            ]
        traces.extend(found)
    return Chart(
        f"{title}: a dot a demand, the lowest first",
        traces,
        layout(unit, xaxis={"rangemode": "tozero"}, yaxis={"rangemode": "tozero"}),
        f"goodput over {unit} as demand grows",
        300,
        upward="goodput, tokens/s",
    )
