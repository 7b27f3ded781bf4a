"""The nucleus without a sort equals the sorted one, whatever the logits look like."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.sampling.draw import draw
from engine.sampling.exponential import exp
from engine.sampling.filters import floors
from engine.sampling.nucleus import cut_nuclei, nucleus_end
from engine.sampling.params import SamplingParams
from tests.twins import draw as draw_twin
from tests.twins import nucleus as twin


@given(st.floats(-708.0, 709.0))
def test_exponentials_are_right_to_the_last_places(x: float) -> None:
    assert abs(exp(x) - math.exp(x)) <= 3 * math.ulp(math.exp(x))


def test_exponentials_at_the_edges() -> None:
    assert exp(0.0) == 1.0
    assert 0.0 < exp(-np.inf) == exp(-1e300) < 1e-307
    assert np.isnan(exp(np.nan))


def random_levels(rng: np.random.Generator, kind: str, count: int) -> Any:
    """Logits of one row [count], float32: what models give, and what they should not."""
    scale = float(rng.choice([0.1, 2.0, 8.0]))
    levels = (scale * rng.standard_normal(count)).astype(np.float32)
    if kind == "tied":
        levels = np.round(levels)
    elif kind == "equal":
        levels[:] = levels[0]
    elif kind == "forbidden":
        levels[rng.random(count) < 0.5] = rng.choice([-np.inf, -1e9, -3e38])
        levels[0] = 1.0
    elif kind == "peaked":
        levels[rng.integers(count)] += 30
    elif kind == "far out":
        levels *= np.float32(1e30)
    elif kind == "next to nothing":
        levels *= np.float32(1e-40)
    return levels


KINDS = ("any", "tied", "equal", "forbidden", "peaked", "far out", "next to nothing")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_nucleus_ends_where_its_twin_says(kind: str, dtype: type) -> None:
    rng = np.random.default_rng(len(kind))
    for count in (1, 2, 3, 30, 300, 1200):
        for _ in range(12):
            levels = random_levels(rng, kind, count).astype(dtype)
            heat = float(rng.choice([1e-3, 0.7, 1.0, 30.0]))
            # A probability that no sum of a few rounded ones hits exactly.
            top_p = float(rng.choice([rng.uniform(0.01, 0.99), rng.uniform(0.99, 1 - 1e-9)]))
            got = nucleus_end(levels, float(levels.max()), heat, top_p)
            assert got == twin.nucleus_end(levels.tolist(), heat, top_p)


def test_shares_that_are_reached_exactly() -> None:
    half = np.log(np.array([0.5, 0.25, 0.125, 0.125]))  # e^half is exact to rounding
    quarter = np.zeros(4)
    for top_p, end in ((0.49, 0), (0.51, 1), (0.74, 1), (0.76, 2), (0.99, 2)):
        assert nucleus_end(half, half[0], 1.0, top_p) == half[end]
        assert nucleus_end(quarter, 0.0, 1.0, top_p) == 0.0
    assert nucleus_end(half, half[0], 1.0, 1.0 - 2.0**-53) == half[3]


def test_extreme_temperatures_and_ranges_end() -> None:
    """Where a float64 overflows or loses all digits there still is an end, and it is a level."""
    tiny, huge = np.array([0.0, -5e-324, 5e-324]), np.array([1e308, -1e308, 0.0, -np.inf])
    for levels in (tiny, huge, np.append(tiny, huge)):
        for heat in (5e-324, 1e-300, 1.0, 1e308):
            for top_p in (5e-324, 0.5, 1 - 2.0**-53):
                assert nucleus_end(levels, levels.max(), heat, top_p) in levels


def test_rows_and_threads_have_no_bearing_on_each_other() -> None:
    rng = np.random.default_rng(1)
    rows, count = 37, 3000
    levels = np.stack([random_levels(rng, KINDS[i % 5], count) for i in range(rows)])
    highest = levels.max(1).astype(float)
    heat, top_p = rng.uniform(0.5, 2, rows), rng.choice([0.3, 0.9, 1.0], rows)
    top_k = rng.choice([0, 0, 5], rows)
    floor = np.full(rows, -2.0)
    cut_nuclei(levels, highest, heat, top_p, top_k, floor)
    for i in range(rows):
        cut = top_p[i] < 1 and top_k[i] == 0
        end = nucleus_end(levels[i], highest[i], heat[i], top_p[i]) if cut else -np.inf
        assert floor[i] == max(-2.0, end)
    token, score = levels.argmax(1), highest.copy()
    draw(levels, floor, heat, np.arange(rows), np.arange(rows), token, score)
    for i in range(rows):
        one, at = slice(i, i + 1), np.arange(rows)[i : i + 1]
        alone, reached = levels[one].argmax(1), highest[one].copy()
        draw(levels[one], floor[one], heat[one], at, at, alone, reached)
        assert (token[i], score[i]) == (alone[0], reached[0])


@pytest.mark.parametrize("top_p", [0.8, 1.0])
def test_a_large_vocabulary_is_drawn_from_as_the_twin_does(top_p: float) -> None:
    rng = np.random.default_rng(2)
    params = SamplingParams(temperature=0.9, top_p=top_p)
    for seed in range(8):
        levels = random_levels(rng, KINDS[seed % 5], 1500)
        row, none = np.array([params.temperature]), np.zeros(1)
        best = np.array([levels.max()], np.float64)
        tensor = torch.from_numpy(levels[None])
        floor = floors(tensor, best, row, none.astype(int), np.array([top_p]), none)
        token, score = levels[None].argmax(1), best.copy()
        draw(levels[None], floor, row, np.array([seed]), np.array([3]), token, score)
        assert token[0] == draw_twin.draw(levels.tolist(), params, seed, 3)
        wanted = draw_twin.scored(levels.tolist(), int(token[0]), params, seed, 3)
        assert score[0] == pytest.approx(wanted)


def test_a_larger_share_never_ends_earlier() -> None:
    levels = random_levels(np.random.default_rng(3), "any", 5000)
    shares = np.sort(np.random.default_rng(4).uniform(0, 1, 200))
    ends = [nucleus_end(levels, float(levels.max()), 20.0, p) for p in shares]
    assert all(later <= earlier for earlier, later in pairwise(ends))
    assert len(set(ends)) > 100
