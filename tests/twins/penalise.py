"""Twin of `engine.sampling.penalty.penalise` for one row."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def penalise(levels: Sequence[float], seen: Collection[int], penalty: float) -> list[float]:
    """Logits after the penalty on the tokens that the text holds."""
    return [
        level if v not in seen else level / penalty if level > 0 else level * penalty
        for v, level in enumerate(levels)
    ]
