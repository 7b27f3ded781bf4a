"""Twin of `engine.sampling.draw`, filters included, for one row of logits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.sampling.params import SamplingParams
from tests.twins.keyed_noise import gumbel


def support(levels: Sequence[float], params: SamplingParams) -> list[int]:
    """Tokens that may be emitted; ties at an edge stay together."""
    order = sorted(levels, reverse=True)
    if params.temperature == 0:
        return list(range(len(levels)))
    weight = [math.exp((level - order[0]) / params.temperature) for level in order]
    k = min(params.top_k, len(order)) or len(order)
    edges = [order[k - 1]]
    if params.top_p < 1:
        inside = weight[:k]
        run = next(n for n in range(1, k + 1) if sum(inside[:n]) >= params.top_p * sum(inside))
        edges.append(order[run - 1])
    least = params.min_p * weight[0]
    return [
        v
        for v, level in enumerate(levels)
        if level >= max(edges) and math.exp((level - order[0]) / params.temperature) >= least
    ]


def law(levels: Sequence[float], params: SamplingParams) -> list[float]:
    """Probability of each token under temperature and filters."""
    alive = support(levels, params)
    weight = [math.exp((level - max(levels)) / params.temperature) for level in levels]
    total = sum(weight[v] for v in alive)
    return [weight[v] / total if v in alive else 0.0 for v in range(len(levels))]


def scored(
    levels: Sequence[float], token: int, params: SamplingParams, seed: int, position: int
) -> float:
    """s of a token: its level and its noise, by temperature."""
    noise = gumbel(seed, position, token) if params.temperature else 0.0
    return levels[token] + params.temperature * noise


def draw(levels: Sequence[float], params: SamplingParams, seed: int, position: int) -> int:
    """The token of the support with the largest score; ties go to the lower one."""
    scores = {v: scored(levels, v, params, seed, position) for v in support(levels, params)}
    return max(scores, key=lambda v: (scores[v], -v))
