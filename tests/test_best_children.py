"""Drafted children are the likeliest tokens, with their probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.best import best_children
from tests.twins.best_children import best_children as twin

WIDEST = 4
NO_IDS = np.empty(0, np.int64)


def written(logits: np.ndarray, ids: np.ndarray = NO_IDS) -> tuple[bool, np.ndarray, np.ndarray]:
    rows = len(logits)
    token = np.full((2, WIDEST, WIDEST), -7)
    probability = np.full(token.shape, -7.0)
    slots, places = np.arange(rows) % 2, np.arange(rows) // 2
    fine = best_children(logits.astype(np.float32), ids, slots, places, token, probability)
    return fine, token[slots, places], probability[slots, places]


# Few values, so that ties are common; fewer tokens than the beam is wide, too.
@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 999), st.sampled_from([1, 30]))
def test_as_its_twin(rows: int, vocab: int, seed: int, scale: int) -> None:
    rng = np.random.default_rng(seed)
    logits = scale * rng.integers(-3, 4, (rows, vocab)) / 2
    ids = rng.permutation(1000)[:vocab]
    fine, token, probability = written(logits, ids)
    assert fine
    for row in range(rows):
        wanted = twin(logits[row].tolist(), WIDEST)
        found = [(int(ids[v]), p) for v, p in wanted]
        n = len(found)
        assert token[row, :n].tolist() == [v for v, _ in found]
        assert probability[row, :n] == pytest.approx([p for _, p in found], rel=1e-5, abs=1e-30)
        assert (probability[row, n:] == 0).all()  # no child


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 17, 39])
def test_what_is_not_finite_is_told(bad: float, at: int) -> None:
    logits = np.zeros((2, 40))
    assert written(logits)[0]
    logits[1, at] = bad
    assert not written(logits)[0]
