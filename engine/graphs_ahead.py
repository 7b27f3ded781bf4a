"""The CUDA graphs that an episode can ask for, captured before the first one begins.

A graph that is captured when a pass needs it costs many times the pass, and warm-up is nobody's
time. How passes are rounded to tiers, and what is done with them, is `models.graphed`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from engine.drafters.build import DraftNetwork
from engine.protocol import Limits
from models.decoder import Decoder
from models.graph_tiers import Tier
from models.graphed import GraphedDecoder, GraphedHead


class Wanted(NamedTuple):
    """A graph that episodes can ask for."""

    network: GraphedDecoder | GraphedHead
    tier: Tier
    masked: bool


@torch.inference_mode()
def capture_ahead(
    target: Decoder,
    network: DraftNetwork | None,
    limits: Limits,
    capacity: int,
    features: tuple[int, ...],
) -> int:
    """Capture what can be asked for, the most wanted first, until the pool is full.

    Passes of the target give the `features` behind these layers too. Returns how many found no
    room: those passes run eagerly. Networks without graphs are left alone.
    """
    left = 0
    for wanted in wanted_graphs(target, network, limits, capacity):
        tier, masked = wanted.tier, wanted.masked
        if wanted.network is target:
            assert isinstance(target, GraphedDecoder)
            left += not target.prepare(tier, masked, features)
        else:
            left += not wanted.network.prepare(tier, masked)
    return left


def wanted_graphs(
    target: Decoder, network: DraftNetwork | None, limits: Limits, capacity: int
) -> Iterator[Wanted]:
    """Every graph once, by how much an episode gains from it: verification, then drafting."""
    asked = (
        (target, _target_shapes(limits, capacity)),
        (network, _draft_shapes(limits, capacity)),
    )
    for of, shapes in asked:
        if isinstance(of, GraphedDecoder | GraphedHead):
            tiers = of.graphs.tiers
            found = [
                Wanted(of, tier, shape.masked)
                for shape in shapes
                for tier in tiers.reach(shape.requests, shape.tokens, shape.more)
            ]
            yield from dict.fromkeys(found)  # each once, where it came first


class Shapes(NamedTuple):
    """Passes of 1 to `requests` requests with 1 to `tokens` tokens each."""

    masked: bool
    requests: int
    tokens: int
    more: int = 0
    """How many more tokens than requests there are at least."""


def _target_shapes(limits: Limits, capacity: int) -> list[Shapes]:
    """Ordinary decoding, trees, chains, and prompts short enough to be no prompt to the tiers."""
    slots, chain = limits.slots, min(limits.max_depth, limits.max_nodes) + 1
    return [
        Shapes(False, slots, 1),
        Shapes(True, slots, limits.max_nodes + 1, 2),  # no chain: somebody has a root and siblings
        Shapes(False, slots, chain),
        Shapes(False, 1, capacity),  # prompts are read one at a time
    ]


def _draft_shapes(limits: Limits, capacity: int) -> list[Shapes]:
    """Rows that a commit has left to be read, beams, and the same after ordinary decoding."""
    slots = limits.slots
    return [
        Shapes(False, slots, limits.max_depth + 1),
        Shapes(True, slots, limits.max_width),
        Shapes(False, slots, capacity),
    ]
