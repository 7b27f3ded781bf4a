"""Live against replay, where the folder has it: how far a replay's figures may be believed."""

from __future__ import annotations

from typing import Any

from eval.report.blocks import Block, Cell, Figure, Section, Table
from eval.report.folder import Data
from eval.report.tables import difference_cell, name_cell, words_cell

IN_MS = ("TPOT", "TTFT", "time")


def section(data: Data) -> Section:
    """The tables of `python -m eval.fidelity`."""
    lines = data["lines"]
    judged = [line for line in lines if line["judged"]]
    held = sum(bool(line["holds"]) for line in judged)
    blocks: list[Block] = [
        Table(
            ["controller", "case", "figure", "live", "replay", "error", "live runs apart", "bar",
             "holds"],
            [_line(line) for line in lines],
            note="Times in milliseconds. A bar is the larger of its value and twice what two live "
            "runs differ by.",
        )
    ]  # fmt: skip
    if pairs := data.get("ranking"):
        blocks.append(
            Table(
                ["pair", "metric", "live difference", "replay", "on live", "holds"],
                [_pair(pair) for pair in pairs],
                "Does replay rank as live does",
            )
        )
    return Section(
        "fidelity",
        "How far replay may be believed",
        "Fidelity",
        f"The same requests served live and on replay: {held} of {len(judged)} judged figures "
        "hold their bar.",
        blocks,
    )


def _line(line: dict[str, Any]) -> list[Cell]:
    unit = 1e3 if any(word in line["figure"] for word in IN_MS) else 1.0
    verdict = words_cell("reported", "quiet")
    if line["judged"]:
        verdict = words_cell("yes", "good") if line["holds"] else words_cell("no", "bad")
    return [
        name_cell(line["controller"]),
        words_cell(line["case"]),
        words_cell(line["figure"]),
        Cell(_short(line["live"], unit)),
        Cell(_short(line["replay"], unit)),
        Cell(_percent(line.get("error"), "+")),
        Cell(_percent(line.get("noise"))),
        Cell(_percent(line.get("bar"))),
        verdict,
    ]


def _pair(pair: dict[str, Any]) -> list[Cell]:
    live = Figure.read(pair["live"])
    words = "no difference shown" if live.straddles_zero else "a difference"
    return [
        words_cell(f"{pair['first']} − {pair['second']}"),
        words_cell(pair["metric"]),
        difference_cell(live, 2),
        Cell(_short(pair["replay"])),
        words_cell(words, "quiet" if live.straddles_zero else ""),
        words_cell("yes", "good") if pair["holds"] else words_cell("no", "bad"),
    ]


def _short(value: float | None, unit: float = 1.0) -> str:
    return "–" if value is None else f"{unit * value:.3g}"


def _percent(value: float | None, sign: str = "") -> str:
    return "–" if value is None else f"{100 * value:{sign}.1f} %"
