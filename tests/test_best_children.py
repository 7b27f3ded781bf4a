"""Drafted children are the likeliest tokens, with their probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.backends.protocol import new_children
from engine.drafters.best_on_device import read_best_children
from engine.kernels.best import best_children
from engine.protocol import Limits
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


@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 999), st.sampled_from([0, 1, 30]))
def test_on_a_card_as_in_the_kernel(rows: int, vocab: int, seed: int, scale: int) -> None:
    rng = np.random.default_rng(seed)
    logits = (scale * rng.integers(-3, 4, (rows, vocab)) / 2).astype(np.float32)
    logits[rng.random(logits.shape) < 0.2] *= -0.0  # some zeros, of either sign
    ids = rng.permutation(1000)[:vocab]
    fine, token, probability = written(logits, ids)
    assert fine
    children = new_children(1, Limits(slots=2, max_width=WIDEST))
    slots, places = np.arange(rows) % 2, np.arange(rows) // 2
    for arrays in children:
        arrays[:] = -7
    assert read_best_children(
        torch.from_numpy(logits), torch.from_numpy(ids), slots, places, children
    )
    assert (children.token[0][slots, places] == token).all()
    found = children.probability[0][slots, places]
    assert found == pytest.approx(probability, rel=1e-5, abs=1e-30)
    assert ((found > 0) == (probability > 0)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 17, 39])
def test_on_a_card_what_is_not_finite_is_told(bad: float, at: int) -> None:
    children = new_children(1, Limits(slots=2, max_width=WIDEST))
    logits = torch.zeros(2, 40)
    slots, places = np.arange(2), np.zeros(2, np.int64)
    logits[0, 3] = -1e30  # a child's probability is never 0, however unlikely it is
    assert read_best_children(logits[:, :4], None, slots, places, children)
    assert (children.probability[0, :, 0] > 0).all()
    before = children.token.copy()
    logits[1, at] = bad
    assert not read_best_children(logits, None, slots, places, children)
    assert (children.token == before).all()
