"""Is a recording's draft probability the chance of being accepted, and how far down?

Reads a `Recording`, synthetic or real.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.protocol import Bools, Floats, Ints
from engine.replay.acceptance import (
    accepted_lengths,
    mean_accepted,
    on_path,
    places_of_nodes,
    roots,
)
from engine.replay.recording import Recording
from engine.replay.synthetic.model import Tier

JUDGED = Tier(depth=8, width=4, nodes=8)
"""The tree whose nodes calibration is judged by: as many as the deepest chain has, the likeliest.
Over all recorded nodes the error would look smaller, most being hopeless and known to be."""


class Reliability(NamedTuple):
    """Nodes by path probability, in bins of equal width from 0 to 1; NaN in an empty one."""

    nodes: Ints  # [B]
    probability: Floats  # [B] mean path probability
    accepted: Floats  # [B] share accepted

    @property
    def ece(self) -> float:
        """Expected calibration error: mean distance of the two, weighted by nodes."""
        full = self.nodes > 0
        gap = np.abs(self.probability[full] - self.accepted[full])
        return float(np.average(gap, weights=self.nodes[full]))


def tree_nodes(r: Recording, tier: Tier) -> Bools:
    """Which nodes [M] a fixed tree verifies, where the text goes on for as long as it is deep."""
    place = places_of_nodes(r)
    left = np.repeat(r.first_token[1:], np.diff(r.first_place)) - 1 - roots(r)
    inside = (r.widths >> (tier.width - 1) & 1).astype(bool) & (r.depth <= tier.depth)
    before = np.concatenate(([0], inside.cumsum()))
    kept = before[:-1] - before[r.first_node[place]] < tier.nodes
    return inside & kept & (left >= tier.depth)[place]


def reliability(r: Recording, tier: Tier = JUDGED, bins: int = 20) -> Reliability:
    """How often nodes of a path probability are accepted."""
    judged = tree_nodes(r, tier)
    shown, accepted = r.probability[judged].astype(float), on_path(r)[judged]
    at = np.minimum((shown * bins).astype(int), bins - 1)
    nodes = np.bincount(at, minlength=bins)
    per_bin = np.maximum(nodes, 1)
    empty = np.where(nodes > 0, 0.0, np.nan)
    return Reliability(
        nodes,
        np.bincount(at, shown, bins) / per_bin + empty,
        np.bincount(at, accepted, bins) / per_bin + empty,
    )


def serving_tokens(r: Recording, tier: Tier) -> float:
    """Tokens an iteration emits, bonus included, when texts are served with a fixed tree."""
    return mean_accepted(r, accepted_lengths(r, on_path(r), *tier))


def chain_survival(r: Recording, depth: int) -> Floats:
    """Share of places [depth] whose chain is accepted up to each position, each place once."""
    judged = tree_nodes(r, Tier(depth, 1, depth))
    accepted = np.bincount(r.depth[judged & on_path(r)], minlength=depth + 1)
    return accepted[1:] / np.bincount(r.depth[judged], minlength=depth + 1)[1:]
