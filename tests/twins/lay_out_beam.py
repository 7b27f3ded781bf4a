"""Twin of `engine.kernels.layout.lay_out_beam` for one slot."""

from __future__ import annotations

from collections.abc import Sequence

from tests.twins.grow import Place
from tests.twins.lay_out_trees import Laid


def lay_out_beam(
    beam: Sequence[Place], token: Sequence[int], context: int, step: int, widest: int
) -> list[Laid]:
    """Beam nodes of draft step `step`, in scratch rows that no other step uses."""
    return [
        Laid(
            token[node.candidate],
            context + step - 1,
            context + (step - 1) * widest + place,
            place,
            place,
            frozenset(range(context)) | {context + row for row in node.rows},
        )
        for place, node in enumerate(beam)
    ]
