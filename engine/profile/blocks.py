"""Products that run in blocks of rows: what an odd row costs, the next even one costs too.

The narrow product (`models.narrow_product`) reads its weights once for a block of rows, and a block
that is not full repeats its last row. So up to a number of rows the cost of a pass is a staircase
of known steps. Most trees that are measured have an even number of nodes and roots; a straight line
between them would price every odd one half a stair too low.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.profile.cost_model import Curve
from engine.protocol import Floats


class Blocks(NamedTuple):
    """Counts above 1 and up to `most` cost what the next multiple of `rows` costs."""

    rows: int
    most: int
    """A multiple of `rows`; larger passes take another kernel."""

    def filled(self, counts: Floats) -> Floats:
        """Each count with the rows that its last block repeats."""
        up = np.ceil(counts / self.rows) * self.rows
        return np.where((counts > 1) & (counts <= self.most), up, counts)

    def stairs(self, curve: Curve) -> Curve:
        """The curve over counts of a `curve` over filled counts: equal at every whole count."""
        multiples = np.arange(self.rows, self.most + 1, self.rows, dtype=float)
        ends = np.unique([1.0, *multiples])  # where a stair ends, so that the next one begins
        heights = np.diff(curve(ends))
        jumps = [(at, h) for at, h in zip(ends.tolist(), heights.tolist(), strict=False) if h > 0]
        behind = zip(curve.jumps_at, curve.jumps_s, strict=True)
        jumps += [(at, h) for at, h in behind if at >= self.most]
        slopes = list(zip(curve.knots, curve.slopes_s, strict=True))
        at_most = [slope for knot, slope in slopes if knot <= self.most][-1:] or [0.0]
        later = [(knot, slope) for knot, slope in slopes if knot > self.most]
        return Curve(
            base_s=float(curve(1.0)),
            knots=(0.0, float(self.most), *(knot for knot, _ in later)),
            slopes_s=(0.0, *at_most, *(slope for _, slope in later)),
            jumps_at=tuple(at for at, _ in jumps),
            jumps_s=tuple(height for _, height in jumps),
        )
