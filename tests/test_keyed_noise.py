"""Keyed noise: uniform, without memory, and with it the law of drawn tokens over seeds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from engine.backends.protocol import new_choices
from engine.protocol import Floats, Ints, Limits
from engine.request import Request
from engine.sampling.noise import gumbel, stream, uniform
from engine.sampling.params import SamplingParams
from engine.sampling.sampler import Sampler
from engine.state import new_slots, new_trees
from tests.twins import draw as twin
from tests.twins import keyed_noise

VOCAB = 12
SETTINGS = {
    "plain": SamplingParams(temperature=1.0),
    "cool": SamplingParams(temperature=0.6),
    "hot": SamplingParams(temperature=1.7, min_p=0.1),
    "top-k": SamplingParams(temperature=0.9, top_k=4),
    "top-p": SamplingParams(temperature=1.1, top_p=0.8),
    "all filters": SamplingParams(temperature=1.2, top_k=8, top_p=0.9, min_p=0.05),
    "no filter, said so": SamplingParams(temperature=1.0, top_k=VOCAB, top_p=1.0, min_p=0.0),
}


def number(seed: int, position: int, token: int) -> float:
    """The uniform number behind the noise."""
    return uniform(np.uint64(stream(seed, position)), token)


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.integers(0, 200_000))
def test_noise_equals_its_twin(seed: int, position: int, token: int) -> None:
    u = number(seed, position, token)
    assert u == keyed_noise.uniform(seed, position, token)
    assert gumbel(u) == pytest.approx(keyed_noise.gumbel(seed, position, token))


def test_extreme_numbers_stay_finite() -> None:
    for u in (0.5 * 2.0**-52, 1.0 - 0.5 * 2.0**-52):
        assert 0 < u < 1
        assert np.isfinite(gumbel(u))


def test_noise_is_uniform_and_independent_of_its_neighbours() -> None:
    seeds, positions, tokens = 60, 40, 40
    u = np.array(
        [[[number(s, p, t) for t in range(tokens)] for p in range(positions)] for s in range(seeds)]
    )
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-3
    for axis in range(3):
        for lag in (1, 2, 7):
            one = np.take(u, range(u.shape[axis] - lag), axis).ravel()
            other = np.take(u, range(lag, u.shape[axis]), axis).ravel()
            assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(one))
    # Seed, position and token may not stand in for one another either.
    swapped = [np.corrcoef(u[:40, :40].ravel(), u[:40, :40].transpose(a).ravel())[0, 1]
               for a in ((1, 0, 2), (0, 2, 1), (2, 1, 0))]  # fmt: skip
    # The diagonal, one entry in forty, is its own image.
    assert max(swapped) < 1 / 40 + 4 / np.sqrt(40**3)


SEEDS = 30_000
LEVELS = 2.0 * np.random.default_rng(1).standard_normal(VOCAB)


@cache
def sampler_of(name: str) -> Sampler:
    """A sampler in which every slot is another seed of the same request."""
    sampler = Sampler(SEEDS)
    for seed in range(SEEDS):
        params = replace(SETTINGS[name], seed=seed)
        sampler.admit(seed, Request(0, 0, [0], 99, 0.0, sampling=params))
    return sampler


def drawn(name: str, position: int) -> Ints:
    """The token that each seed draws at an output position, always from the same logits."""
    limits = Limits(slots=SEEDS, max_depth=1, max_width=1, max_nodes=1)
    slots, trees, choices = new_slots(1, limits, 1), new_trees(1, limits), new_choices(1, limits)
    slots.context[:] = position
    slot = np.arange(SEEDS)
    logits = torch.from_numpy(np.tile(LEVELS, (SEEDS, 1)))
    root, margin = np.full(SEEDS, -1), np.ones(SEEDS)
    sampler_of(name).choose(logits, slot, root, margin, slots, trees, choices)
    return choices.root_token[0]


def frequencies(name: str, position: int) -> Ints:
    """How often each token is drawn over the seeds."""
    return np.bincount(drawn(name, position), minlength=VOCAB)


def law_of(params: SamplingParams) -> Floats:
    """The law that they should follow."""
    return np.array(twin.law(LEVELS.tolist(), params))


def p_value(counts: Ints, law: Floats) -> float:
    """Chi-square over the tokens of positive probability; 0 when another one was seen."""
    if counts[law == 0].any():
        return 0.0
    alive = law > 0
    if alive.sum() == 1:
        return 1.0
    expected = law[alive] * counts.sum()
    few = expected < 5  # pooled, as the test's approximation asks
    seen = np.append(counts[alive][~few], counts[alive][few].sum())
    wanted = np.append(expected[~few], expected[few].sum())
    real = wanted > 0
    return float(stats.chisquare(seen[real], wanted[real]).pvalue)


@pytest.mark.parametrize("name", SETTINGS)
def test_draws_follow_the_processed_law(name: str) -> None:
    for position in (0, 1, 63):
        assert p_value(frequencies(name, position), law_of(SETTINGS[name])) > 1e-4


def test_the_chi_square_has_power() -> None:
    """A law that is off by a little, or of another setting, must be refused."""
    counts = frequencies("plain", 0)
    assert p_value(counts, law_of(SETTINGS["plain"])) > 1e-4
    assert p_value(counts, law_of(SamplingParams(temperature=0.93))) < 1e-6
    assert p_value(counts, law_of(SETTINGS["top-k"])) == 0


def test_tokens_at_two_positions_are_independent() -> None:
    first, second, law = drawn("plain", 0), drawn("plain", 1), law_of(SETTINGS["plain"])
    joint = np.outer(law, law).ravel()
    assert p_value(np.bincount(first * VOCAB + second, minlength=VOCAB**2), joint) > 1e-4
    assert p_value(np.bincount(first * VOCAB + first, minlength=VOCAB**2), joint) < 1e-6
