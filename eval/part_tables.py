"""The tables in a terminal of the commands that write a part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eval.writing import number

if TYPE_CHECKING:
    from rich.table import Table


def empty_table(title: str) -> Table:
    """A table without rows, its first column that of names."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    return table


def figure_cell(figure: Mapping[str, Any], digits: int, between: str = " ") -> str:
    """`value`, `between`, and the interval unless nothing bounds it; – for none, as a median that
    is never reached."""
    value, low, high = (known(figure[key]) for key in ("value", "low", "high"))
    text = number(value, digits)
    if math.isnan(value) or not (math.isfinite(low) or math.isfinite(high)):
        return text
    return f"{text}{between}[{number(low, digits)}, {number(high, digits)}]"


def known(value: float | None) -> float:
    """The number, nan for null."""
    return math.nan if value is None else value
