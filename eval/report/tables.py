"""Cells and columns of figures: text with its interval, and the interval drawn beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eval.report.blocks import Cell, Figure
from eval.report.palette import Palette
from eval.report.strips import scale_of, strip

NO_DIFFERENCE = "no difference shown"


def name_cell(name: str, says: str = "", tone: str = "") -> Cell:
    """A controller, with its colour beside it."""
    return Cell(says or name, key=name, tone=tone, is_figure=False)


def words_cell(words: str, tone: str = "") -> Cell:
    """Words at the left edge."""
    return Cell(words, tone=tone, is_figure=False)


def figure_cell(figure: Figure, digits: int = 1, unit: str = "", strip_svg: str = "") -> Cell:
    """`value [low, high] unit`; a dash where nothing is known."""
    if not figure.is_known:
        return Cell("∞" if math.isinf(figure.value) else "–", tone="quiet")
    told = number(figure.value, digits)
    if figure.has_interval:
        told += f" [{number(figure.low, digits)},\u00a0{number(figure.high, digits)}]"
    return Cell(f"{told}{unit}", strip_svg)


def column(
    names: Sequence[str], figures: Sequence[Figure], palette: Palette, digits: int = 1
) -> list[Cell]:
    """A column of one figure by controller, drawn on a scale that all of it share."""
    scale = scale_of(figures)
    return [
        figure_cell(f, digits, strip_svg=strip(f, scale, palette.look(n).colour))
        for n, f in zip(names, figures, strict=True)
    ]


def difference_column(
    figures: Sequence[Figure], colours: Sequence[str], digits: int = 1
) -> list[Cell]:
    """A column of differences: signed, zero marked, and no sign claimed that is not shown."""
    scale = scale_of(figures, from_zero=True)
    return [
        difference_cell(f, digits, strip(f, scale, colour, with_zero=True))
        for f, colour in zip(figures, colours, strict=True)
    ]


def difference_cell(figure: Figure, digits: int = 1, strip_svg: str = "") -> Cell:
    """`+value [low, high]`, quiet where the interval straddles zero."""
    if not figure.is_known:
        return Cell("–", tone="quiet")
    told = number(figure.value, digits, "+")
    if figure.has_interval:
        told += f" [{number(figure.low, digits, '+')},\u00a0{number(figure.high, digits, '+')}]"
    return Cell(told, strip_svg, "quiet" if figure.straddles_zero else "")


def number(value: float, digits: int, sign: str = "") -> str:
    """With a true minus, thousands apart, and no minus before nothing."""
    told = f"{value:{sign},.{digits}f}"
    if float(told.replace(",", "")) == 0:
        told = told.replace("-", "+" if sign else "")
    return told.replace("-", "−")
