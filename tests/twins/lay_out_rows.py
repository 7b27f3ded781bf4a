"""Twin of `engine.kernels.layout.lay_out_rows` for one slot."""

from __future__ import annotations

from collections.abc import Sequence

from tests.twins.lay_out_trees import Laid


def lay_out_rows(first: int, end: int, text: Sequence[int], shift: int) -> list[Laid]:
    """Rows [first, end) of running text; each sees itself and all before."""
    return [
        Laid(text[row + shift], row, row, row - first, row - first, frozenset(range(row + 1)))
        for row in range(first, end)
    ]
