"""What a change costs: verdicts, regret by disturbance, and the course around each change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from eval.adaptation_test.telling import caveats
from eval.report.blocks import Cell, Chart, Figure, Panels, Section, Table, Words
from eval.report.charts import Layout, Trace, axis, hover, known, layout, line, upright
from eval.report.folder import Data
from eval.report.matrix import sentence
from eval.report.palette import ORACLE, Palette
from eval.report.tables import column, figure_cell, name_cell

ALL = "all"
COLUMNS = (
    ("settling_s", "settled after, median s", 0),
    ("restricted_s", "settled after, mean s", 1),
    ("not_settled", "not settled, %", 0),
    ("excess_s", "over the oracle, s", 1),
    ("transient", "regret before it settled, %", 1),
    ("steady", "regret after, %", 1),
    ("debt", "SLO debt, %", 1),
    ("undershoot", "undershoot, %", 0),
    ("violations", "misses in transition", 1),
    ("churn", "changes of plan a second", 2),
)
UPPER, LOWER = [0.36, 1.0], [0.0, 0.25]
"""Shares of a panel's height: what was served, and what was done."""


def section(data: Data, palette: Palette) -> Section:
    """All of the adaptation test."""
    names = sorted(data["controllers"], key=lambda n: _order(data["figures"][ALL][n]["regret"]))
    overall = sentence(data["verdicts"][ALL]["says"])
    others = [sentence(v["says"]) for k, v in data["verdicts"].items() if k != ALL]
    panels = [_panel(data, key, palette) for key in data["disturbances"]]
    return Section(
        "adaptation",
        "After a change",
        "Adaptation",
        "Regret: SLO-valid tokens behind the switching oracle's, in percent of them; below zero is "
        "better than an oracle that changes to each regime's best fixed tree at once. Lines in the "
        "panels are means over the seeds; the tables have their intervals.",
        [
            Words([overall], tone="verdict"),
            _regret(data, names, palette),
            Words(others, is_list=True),
            _by_controller(data, names),
            Words(list(_notes(data)), is_list=True),
            Panels(panels, [ORACLE, *data["controllers"]], 440),
        ],
    )


def _regret(data: Data, names: Sequence[str], palette: Palette) -> Table:
    titles = {k: of["title"] for k, of in data["disturbances"].items()}
    keys = [ALL, *titles]
    columns: list[list[Cell]] = []
    for key in keys:
        figures = [Figure.read(data["figures"][key][n]["regret"]) for n in names]
        if key == ALL:
            columns.append(column(names, figures, palette, 1))
        else:
            columns.append([figure_cell(f, 0) for f in figures])
    rows = [[name_cell(n), *cells] for n, *cells in zip(names, *columns, strict=True)]
    head = ["controller", "all together", *titles.values()]
    return Table(head, rows, "Regret after a change, % of the oracle's tokens in time")


def _by_controller(data: Data, names: Sequence[str]) -> Table:
    rows = []
    for name in names:
        of = data["figures"][ALL][name]
        figures = [figure_cell(Figure.read(of.get(key)), digits) for key, _, digits in COLUMNS]
        rows.append([name_cell(name), *figures])
    head = ["controller", *(title for _, title, _ in COLUMNS)]
    return Table(
        head,
        rows,
        "What a change costs, all disturbances together",
        "Settled, and what hangs on it, by the mean course over the seeds; one that the next "
        "change cut counts as censored (Kaplan-Meier), and a median that was never reached is "
        "shown as –. Percentages are of the oracle's tokens.",
    )


def _notes(data: Data) -> Iterable[str]:
    trees = "; ".join(
        f"{of['title']}: {', '.join(s['oracle_tree'] for s in of['stretches'])}"
        for of in data["disturbances"].values()
    )
    yield f"settled: {data['settled_when']}"
    yield f"the oracle {data['oracle']}"
    yield f"the oracle's trees, by stretch: {trees}"
    yield from caveats(data)


def _panel(data: Data, key: str, palette: Palette) -> Chart:
    """SLO-valid tokens above, the depth of the trees below, one axis of time."""
    of, courses = data["disturbances"][key], data["courses"][key]
    times = [float(at) + of["window_s"] / 2 for at in courses["at_s"]]
    traces: list[Trace] = []
    for name, course in courses["controllers"].items():
        look = palette.look(name)
        served = [Figure.read(value) for value in course["valid_tps"]]
        traces.extend(line(name, look, times, served, " tokens/s"))
        traces.append(_depth(name, look.colour, look.dash, times, course))
    shapes, labels = _changes(of)
    most = max((v for c in courses["controllers"].values() for v in c["valid_tps"]), default=1.0)
    return Chart(
        of["title"].capitalize(),
        [{**t, "mode": "lines"} if t["mode"] == "lines+markers" else t for t in traces],
        layout(
            "seconds",
            xaxis={"range": [0, of["end_s"]], "anchor": "y2"},
            yaxis={"domain": UPPER, "range": [0, 1.18 * most]},
            yaxis2=axis("", domain=LOWER, rangemode="tozero", nticks=3),
            shapes=shapes,
            annotations=[*labels, _named_axis("depth of the trees", LOWER[1])],
        ),
        f"{of['title']}: {data['verdicts'][key]['says']}",
        340,
        note="; ".join(f"from {s['start_s']:g} s {s['says']}" for s in of["stretches"]),
        upward="SLO-valid tokens/s",
    )


def _depth(
    name: str, colour: str, dash: str, times: Sequence[float], course: dict[str, Any]
) -> Trace:
    depths = [Figure.read(d) for d in course["depth"]]
    nodes = [Figure.read(n) for n in course["nodes"]]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(times),
        "y": [known(d.value) for d in depths],
        "yaxis": "y2",
        "line": {"color": colour, "dash": dash, "width": 1.8, "shape": "hvh"},
        "name": name,
        "meta": name,
        "text": [
            hover(name, d, " deep") + f"<br>{n.value:.1f} nodes"
            for d, n in zip(depths, nodes, strict=True)
        ],
        "hoverinfo": "text",
    }


def _changes(of: dict[str, Any]) -> tuple[list[Layout], list[Layout]]:
    shapes: list[Layout] = []
    labels: list[Layout] = []
    for i, stretch in enumerate(of["stretches"][1:]):
        shape, label = upright(stretch["start_s"], stretch["says"], 1.0 - 0.065 * i)
        shapes.extend(shape)
        labels.extend(label)
    return shapes, labels


def _named_axis(words: str, above: float) -> Layout:
    """The lower chart's own heading, where a turned title would be hard to read."""
    return {
        "x": 0, "xref": "paper", "xanchor": "left",
        "y": above, "yref": "paper", "yanchor": "bottom",
        "text": words, "showarrow": False, "font": {"size": 12},
    }  # fmt: skip


def _order(figure: Any) -> float:
    value = Figure.read(figure)
    return value.value if value.is_known else float("inf")
