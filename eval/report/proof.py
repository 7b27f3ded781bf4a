"""Whether speculation changed the text: the proof's verdict and its table."""

from __future__ import annotations

from eval.report.blocks import Cell, Figure, Section, Table, Words
from eval.report.folder import Data
from eval.report.tables import figure_cell, name_cell, words_cell

TONES = {"lossless": "good", "broken": "bad", "BROKEN": "bad", "NOT CAUGHT": "bad"}
HEAD = (
    "controller", "status", "tokens compared", "texts that part", "not by rounding",
    "agreement %", "tokens a request's iteration", "let through %", "chi-square p",
    "total variation", "by chance alone",
)  # fmt: skip


def section(data: Data) -> Section:
    """What `python -m eval.lossless` found."""
    control = data["control"]
    rows = [[name_cell(name), *_cells(of)] for name, of in data["controllers"].items()]
    rows.append([words_cell(control["name"], "quiet"), *_cells(control)])
    return Section(
        "lossless",
        "Is the text still the target's",
        "Lossless",
        f"Served live: {data['pair']}.",
        [
            Words([data["verdict"]], tone="verdict"),
            Table(
                HEAD,
                rows,
                note="Texts beside ordinary decoding's under the same seeds; total variation of "
                "the first tokens to the target's own law, and what as many draws of that law "
                "show. The control must be caught, or the proof has too little to go by.",
            ),
            Words(data.get("notes") or [], is_list=True),
        ],
    )


def _cells(of: Data) -> list[Cell]:
    chance = Figure.read(of["chance_variation"])
    return [
        words_cell(of["status"], TONES.get(of["status"], "")),
        Cell(f"{of['compared_tokens']:,}"),
        Cell(f"{of['departures']:,}"),
        Cell(f"{of['unexplained']:,}", tone="bad" if of["unexplained"] else ""),
        figure_cell(Figure.read(of["agreement"]).times(100), 1),
        figure_cell(Figure.read(of["tokens_per_iteration"]), 2),
        figure_cell(Figure.read(of["let_through"]).times(100), 1),
        figure_cell(Figure.read(of["chi_square_p"]), 3),
        figure_cell(Figure.read(of["total_variation"]), 3),
        Cell(f"{chance.low:.3f} to {chance.high:.3f}"),
    ]
