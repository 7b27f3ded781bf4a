"""Top-k, top-p and min-p as one threshold a row: what lies at or above it may be emitted.

Thresholds, not index sets: tokens that tie are all in or all out, so that the support hangs on the
logits alone and not on how a sort breaks ties (bfloat16 logits tie often).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.protocol import Floats, Ints
from engine.sampling.nucleus import cut_nuclei


def floors(
    levels: Tensor,
    highest: Floats,
    temperature: Floats,
    top_k: Ints,
    top_p: Floats,
    min_p: Floats,
) -> Floats:
    """Lowest logit [n] that stays in each row's support; -inf where no filter binds.

    `levels` are logits [n, vocabulary], `highest` their row maxima; the rest is by row, with all
    temperatures above 0. Top-k keeps what reaches the k-th largest logit. Top-p keeps what reaches
    the last of the shortest run of likeliest tokens whose probability is at least p, of the k
    likeliest if top-k is set. Min-p keeps what is at least min_p times as likely as the likeliest.
    """
    with np.errstate(divide="ignore"):
        floor = highest + temperature * np.log(min_p)
    rows = np.flatnonzero(top_k > 0)
    if len(rows):
        k = np.minimum(top_k[rows], levels.shape[1])
        best = _largest(levels, rows, int(k.max()))
        floor[rows] = np.maximum(floor[rows], best[np.arange(len(rows)), k - 1])
        inside = np.arange(best.shape[1]) < k[:, None]
        weight = _weights(best, highest[rows], temperature[rows]) * inside
        _cut_runs(floor, rows, best, weight, top_p[rows] * weight.sum(1))
    if (top_p < 1.0).any():
        # Also called where top-k bounds every run, and then idle: a warm-up compiles it anyhow.
        cut_nuclei(levels.numpy(), highest, temperature, top_p, top_k, floor)
    return floor


def kth_largest(levels: Tensor, k: Ints) -> Floats:
    """The k-th largest logit of each row [n], the last where a row has fewer."""
    k = np.minimum(k, levels.shape[1])
    return _largest(levels, np.arange(len(k)), int(k.max()))[np.arange(len(k)), k - 1]


def _largest(levels: Tensor, rows: Ints, count: int) -> Floats:
    """The `count` largest logits of some rows, in order."""
    chosen = levels if len(rows) == len(levels) else levels[torch.from_numpy(rows)]
    return chosen.topk(count, dim=-1).values.double().numpy()


def _weights(values: Floats, highest: Floats, temperature: Floats) -> Floats:
    """Unnormalised probabilities, 1 for the likeliest."""
    return np.exp((values - highest[:, None]) / temperature[:, None])


def _cut_runs(floor: Floats, rows: Ints, best: Floats, weight: Floats, wanted: Floats) -> None:
    """Raise the floors of rows to the end of the run whose weight reaches `wanted`."""
    enough = np.cumsum(weight, axis=1) >= wanted[:, None]
    # Rounding may leave a full run a hair short of a wanted share of 1: then all of it stays.
    last = np.where(enough.any(1), enough.argmax(1), (weight > 0).sum(1) - 1)
    floor[rows] = np.maximum(floor[rows], best[np.arange(len(rows)), last])
