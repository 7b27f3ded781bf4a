"""The slow twin of `engine.kernels.best_prefixes`."""

from __future__ import annotations

import numpy as np

from engine.protocol import Bools, Floats, Ints


def best_prefixes(survival: Floats, size: Ints, requests: int, seconds: Floats) -> Bools:
    """Which drafts [S, K] to verify: all budgets are tried."""
    step = np.arange(survival.shape[1])[:, None]
    chance = np.where(step < size, survival.T, -1.0).ravel()
    likeliest = np.argsort(-chance, kind="stable")[: int(size.sum())]
    tokens = requests + np.concatenate(([0.0], np.cumsum(chance[likeliest])))
    kept = np.zeros(len(chance), np.bool_)
    kept[likeliest[: int(np.argmax(tokens / seconds[: len(tokens)]))]] = True
    return kept.reshape(survival.shape[::-1]).T
