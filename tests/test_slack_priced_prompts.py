"""How much of the prompts slack-priced reads, and its small kernels against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from engine.kernels.forecast import learn_acceptance, likenesses
from engine.kernels.least_price import least_price
from engine.kernels.slack_weights import drafting_s, slack_weights
from engine.protocol import PROMPT_CHUNKS, Floats
from policies.prompt_share import LONGEST, prompt_tokens

INF = float("inf")
LINE: Floats = np.array(PROMPT_CHUNKS) / 1000.0  # a thousand tokens a second


def test_what_is_read_by_hand() -> None:
    # 100 tokens a second are emitted, half of which may be spoken for. 25 needed are half of that:
    # as long is read as a step takes, 0.1 s, which is 100 tokens.
    assert prompt_tokens(25.0, 100.0, 0.1, LINE) == 100
    # 40 needed are 0.8 of it: a quarter of a step. However many are needed, it is no less.
    assert [prompt_tokens(n, 100.0, 0.1, LINE) for n in (40.0, 49.0, 500.0)] == [25, 25, 25]
    # Nothing is needed: four steps; were they longer, no more than the longest piece.
    assert prompt_tokens(0.0, 100.0, 0.1, LINE) == 400
    assert prompt_tokens(0.0, 100.0, 10.0, LINE) == LONGEST
    # Who need nothing and emit nothing hold up nobody either.
    assert prompt_tokens(0.0, 0.0, 0.1, LINE) == 400


def test_a_price_that_every_piece_pays_makes_pieces_longer() -> None:
    # Reading the weights takes 30 ms: a token costs 1.9 ms in pieces of 16, 0.26 in the cheapest of
    # 512, at most twice that from 128 on.
    dear = 0.030 + 0.2 * LINE
    assert prompt_tokens(500.0, 100.0, 0.1, dear) == 128


def test_more_need_never_reads_more() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        prices = np.cumsum(rng.uniform(0.001, 0.2, len(PROMPT_CHUNKS)))
        needs = np.sort(rng.uniform(0, 200, 6)).tolist()
        read = [prompt_tokens(n, 150.0, 0.2, prices) for n in needs]
        assert read == sorted(read, reverse=True) and read[-1] >= PROMPT_CHUNKS[0]


def test_the_least_price_is_that_of_all_pairs() -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        price = np.cumsum(rng.choice([-0.1, 0.0, 0.1, 1.0], int(rng.integers(1, 12))))
        expected = [
            min(((price[j] - price[i]) / (j - i) for j in range(i + 1, len(price))), default=INF)
            for i in range(len(price))
        ]
        assert least_price(price).tolist() == pytest.approx(expected)


def test_weights_and_needs_are_as_defined() -> None:
    rng = np.random.default_rng(2)
    seen = set()
    for _ in range(100):
        active, left = rng.random(5) < 0.7, rng.integers(0, 9, 5)
        objective_s = rng.choice([0.05, 0.2, INF], 5)
        slack, pace_s = rng.uniform(-9, 9, 5), float(rng.uniform(0.01, 0.3))
        weight, needed = slack_weights(active, objective_s, slack, left, pace_s, 2.0, 0.5, 0.9, 3.0)
        expected, needs = [], 0.0
        for s in range(5):
            r = max(int(left[s]), 1)
            allowed_s = objective_s[s] * (r + slack[s]) / r if objective_s[s] < INF else INF
            pressure = pace_s / max(allowed_s, 1e-12)
            u = 0.9 if pressure > 3 else max(pressure**2, 0.5)
            expected.append(u if active[s] else 0.0)
            needs += 1 / allowed_s if active[s] and pressure <= 3 else 0.0
            seen.add(expected[-1] if expected[-1] in (0.0, 0.5, 0.9) else "between")
        assert weight.tolist() == pytest.approx(expected)
        assert needed == pytest.approx(needs)
    assert seen == {0.0, 0.5, 0.9, "between"}


def test_drafting_takes_what_its_steps_take() -> None:
    # Two draft, 1 and 3 deep, with 2 and 1 rows behind them: the first step of three rows, and two
    # further ones of a single request.
    first_s, next_s = np.array([1.0, 0.1]), np.array([0.0, 0.5, 0.7])
    rows = np.array([2, 0, 9])
    assert drafting_s(np.array([1, 3, 0]), rows, first_s, next_s) == pytest.approx(1.3 + 2 * 0.5)
    assert drafting_s(np.zeros(3, np.int64), rows, first_s, next_s) == 0.0


def test_likeness_and_acceptance_by_hand() -> None:
    # With the prior 8 + 8 of 16 + 16 were accepted, so half is usual. The first accepted all of 8:
    # (8 + 4) / (16 / 2) = 1.5; the second none of 8: 4 / 8. The third is not there.
    accepted, proposed = np.array([[8.0], [0.0], [5.0]]), np.array([[8.0], [8.0], [5.0]])
    some = np.array([True, True, False])
    assert likenesses(some, accepted, proposed, 8.0)[:2].tolist() == [1.5, 0.5]
    expected, seen = np.array([10.0, 4.0]), np.array([6.0, 2.0])
    took = np.array([[True, True], [True, False], [True, True]])
    scale = np.ones(2)
    learn_acceptance(some, took, np.zeros(2), 0.5, 2.0, 0.9, expected, seen, scale)
    assert (
        expected.tolist() == [10, 4] and seen.tolist() == [6, 2] and scale.tolist() == [1, 1]
    )  # nothing was drafted
    learn_acceptance(some, took, np.array([3.0, 1.0]), 0.5, 2.0, 0.9, expected, seen, scale)
    assert expected.tolist() == [8, 3] and seen.tolist() == [5, 2]
    # With 2 more of both 7 of 10 were accepted, then 4 of 5: no layer is better than the one above.
    assert scale.tolist() == [0.7, 0.7]
