"""What the papers published, as far as their figures give it: what panels set beside our values.

AdaServe is EuroSys 2026, its Llama-3.1-70B on 4 × A100-80GB; figures 8 to 11 are read off the plot,
right to a point or two. AdaptiveSpec and Learning-to-Draft (ICLR 2026) are their abstracts' claims.
"""

from __future__ import annotations

from typing import NamedTuple


class Curve(NamedTuple):
    """Published points of one contender."""

    label: str
    points: tuple[tuple[float, float], ...]


FIG8 = (
    Curve("AdaServe", ((2.6, 99.0), (4.8, 87.0))),
    Curve("best baseline", ((4.8, 42.0),)),
)
FIG8_VIOLATIONS = Curve("best point", ((4.8, 4.3),))
FIG9_GOODPUT_RATIO = Curve("best point", ((4.8, 1.9),))
FIG10 = (Curve("AdaServe", ((0.2, 85.0), (0.9, 98.0))),)
FIG11 = (Curve("all of them", ((0.6, 40.0),)),)
FIG14 = {
    "vllm": 52.6,
    "sarathi": 65.6,
    "vllm-spec(4)": 51.6,
    "vllm-spec(6)": 47.8,
    "vllm-spec(8)": 38.4,
    "adaserve": 83.6,
}
FIG15_SELECTION_PERCENT = {"Llama-70B": 0.31, "Qwen-32B": 0.41}
ADAPTIVESPEC = (93.0, 1.56)
"""Percent of the accuracy kept, and throughput over EAGLE-3's static tree: up to 56 % more."""
LEARNING_TO_DRAFT = (1.05, 1.36)
"""Throughput over EAGLE-3 at batch 1: 5 to 36 % more."""
LEARNING_TO_DRAFT_DECISION_PERCENT = 1.5
