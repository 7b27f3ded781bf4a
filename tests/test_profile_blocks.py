"""Rows that products take in blocks: curves over whole blocks, found where a machine has them."""

from __future__ import annotations

import numpy as np
import pytest

from engine.profile.blocks import Blocks
from engine.profile.cost_model import Curve
from engine.profile.fit import CurveData, fit
from engine.profile.live import ProfileRounds
from engine.profile.measure import Timed
from engine.profile.schedule import Episode, Shape, schedule
from engine.protocol import Floats, Limits
from engine.tiny import tiny_server
from tests import profile_steps

BLOCKS = Blocks(2, 48)
COUNTS = np.arange(1.0, 81.0)
# Mostly even, as trees with their roots are.
MEASURED = np.array([1, 2, 3, 4, 6, 7, 8, 11, 12, 16, 17, 20, 24, 25, 28, 32, 40, 48, 49, 64, 80.0])


def blocked_s(counts: Floats) -> Floats:
    """By hand: pairs of rows up to 48, another kernel beyond."""
    pairs = np.where(counts > 1, 2 * np.ceil(counts / 2), 1)
    return np.where(counts <= 48, 0.020 + 0.002 * pairs, 0.150 + 0.001 * (counts - 48))


def worst_error(curve: Curve, truth: Floats) -> float:
    return float(np.abs(curve(COUNTS) / truth - 1).max())


def test_an_odd_row_costs_what_the_next_even_one_does() -> None:
    filled = BLOCKS.filled(np.array([0.0, 1, 2, 3, 4, 47, 48, 49, 51]))
    assert filled.tolist() == [0, 1, 2, 4, 4, 48, 48, 49, 51]


def test_stairs_are_the_curve_over_filled_counts() -> None:
    curve = Curve(
        0.02, (0.0, 6.0, 60.0), (0.001, 0.002, 0.003), (18.0, 48.5, 70.0), (0.1, 0.2, 0.3)
    )
    stairs = BLOCKS.stairs(curve)
    assert stairs(COUNTS) == pytest.approx(curve(BLOCKS.filled(COUNTS)))
    assert [stairs.at(n) for n in COUNTS] == pytest.approx(stairs(COUNTS))
    flat = Curve(0.5)
    assert BLOCKS.stairs(flat)(COUNTS) == pytest.approx(flat(COUNTS))
    three = Blocks(3, 9)
    assert three.stairs(curve)(COUNTS) == pytest.approx(curve(three.filled(COUNTS)))


def test_blocks_are_found_at_counts_that_nobody_measured() -> None:
    data, times = CurveData(MEASURED, np.ones_like(MEASURED)), blocked_s(MEASURED)
    found = fit([data], [], times, blocks=BLOCKS).curves[0]
    assert worst_error(found, blocked_s(COUNTS)) < 0.01
    plain = fit([data], [], times).curves[0]  # negative control
    assert worst_error(plain, blocked_s(COUNTS)) > 0.02


def test_a_machine_without_blocks_keeps_its_line() -> None:
    line = 0.004 + 0.002 * COUNTS
    data = CurveData(MEASURED, np.ones_like(MEASURED))
    found = fit([data], [], 0.004 + 0.002 * MEASURED, blocks=BLOCKS).curves[0]
    assert worst_error(found, line) < 0.005


def test_the_schedule_verifies_odd_numbers_and_both_sides_of_the_last_block() -> None:
    episodes = schedule(Limits(), 959, False, np.random.default_rng(0))
    alone = {s.nodes + 1 for e in episodes if e.requests == 1 for s in e.shapes}
    assert {48, 49} <= alone and sum(n % 2 for n in alone if 5 < n < 48) >= 4
    prompts = {e.prompt_tokens for e in episodes if e.requests == 1 and not e.chunk_tokens}
    assert {48, 49} <= prompts


def test_rounds_repeat_the_points_of_one_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [Episode(1, 5, (Shape(0, 1, 0), Shape(1, 1, 1))), Episode(2, 4, (Shape(2, 1, 2),))]
    monkeypatch.setattr("engine.profile.live._episodes", lambda *_: few)
    with profile_steps.one_thread():
        server = tiny_server(0, 16, limits=Limits(slots=2), capacity_tokens=128)
        rounds = ProfileRounds(server, quick=True, seed=0)
        first, second = rounds.run(), rounds.run()

    def points(timed: Timed) -> list[tuple[int, int, int]]:
        return [(step.episode, step.place, step.tokens) for step in timed.steps]

    assert points(first) == [(0, 0, 1), (0, 1, 2), (1, 0, 6)]
    assert points(second) == [(1, 0, 6), (0, 0, 1), (0, 1, 2)]  # turns begin elsewhere
    assert len(rounds.rounds) == 2
