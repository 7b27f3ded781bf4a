"""The control of the proof: a fixed tree under a margin, which is lossy and must be found out."""

from __future__ import annotations

from engine.protocol import Controller, Plan, View, uniform_plan

DEPTH, WIDTH, NODES = 4, 4, 12


class Loose(Controller):
    """Accepts what the target holds at least `margin` times as good as its own choice."""

    name = "control"
    lossless = False

    def __init__(self, margin: float) -> None:
        self.margin = margin

    def plan(self, view: View) -> Plan:
        """The same tree for everybody."""
        limits = view.limits
        return uniform_plan(
            limits,
            min(DEPTH, limits.max_depth),
            min(WIDTH, limits.max_width),
            min(NODES, limits.max_nodes),
            margin=self.margin,
        )
