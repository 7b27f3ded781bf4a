"""Shifts are noticed when they come, seldom when they do not, and alike by fleet and single."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv

import envs
from engine.workload import WorkloadConfig
from engine.workload.regimes import Regime
from envs.observing import Aggregate
from policies.actions import ActionTable
from policies.features import feature_table, observe
from policies.shifts import Shifts, next_acceptance, next_arrivals
from tests.test_features import CLASSES, make_view
from tests.tiny_recording import replay_server

TABLE = ActionTable(CLASSES)


def alarms(rates: list[float], seed: int) -> list[int]:
    """Moments of alarm among Poisson arrivals of those rates, one for each second."""
    rng, found = np.random.default_rng(seed), []
    kept = 0.0, 0.0, 0.0, 0.0
    for second, rate in enumerate(rates):
        *_, changed = now = next_arrivals(float(rng.poisson(rate)), 1.0, *kept)
        kept = now[:4]
        found += [second] if changed else []
    return found


def test_arrivals_that_double_or_halve_are_noticed_and_steady_ones_seldom() -> None:
    steady = [alarms([1.0] * 400, seed) for seed in range(20)]
    assert sum(map(len, steady)) <= 20  # of 8,000 arrivals
    for after in (3.0, 0.2):
        found = [alarms([1.0] * 100 + [after] * 100, seed) for seed in range(20)]
        delays = [min((t - 100 for t in f if t >= 100), default=999) for f in found]
        # Who was wrong just before has nothing to compare with yet.
        assert np.median(delays) < 40 and sum(delay < 100 for delay in delays) >= 18


def test_acceptance_that_falls_or_rises_is_noticed_and_a_noisy_one_seldom() -> None:
    def found(levels: list[float], seed: int) -> list[int]:
        rng, at = np.random.default_rng(seed), []
        kept = 0.0, 0.0, 0.0, 0.0
        for i, level in enumerate(levels):
            *_, changed = now = next_acceptance(level + rng.normal(0, 0.1), 0.8, *kept)
            kept = now[:4]
            at += [i] if changed else []
        return at

    assert sum(len(found([0.6] * 500, seed)) for seed in range(10)) <= 2
    for after in (0.35, 0.85):
        for seed in range(10):
            (first, *_) = [i for i in found([0.6] * 100 + [after] * 100, seed) if i >= 100]
            assert first < 180
    assert found([0.6, 0.2] * 2, 0) == []  # too little to compare with


def looked_at(shifts: Shifts, **changes: Any) -> Shifts:
    """After a look at a quiet view with these changes."""
    quiet = {
        "active": np.zeros(16, bool),
        "request": np.arange(16),
        "slo_class": np.zeros(16, np.int64),
        "queued": np.zeros(3, np.int64),
        "prefilling": 0,
        "iteration_s": 0.05,
    }
    view = make_view(np.random.default_rng(0), **{**quiet, **changes})
    shifts.look(view, [0.5] * 3, [0.0] * 3, [255.0] * 3)
    return shifts


def some(*slots: int) -> np.ndarray:
    """[16] these slots."""
    return np.isin(np.arange(16), slots)


def test_who_arrives_is_counted_once_on_the_way_from_queue_to_slot() -> None:
    shifts = looked_at(Shifts(3), clock_s=1.0)
    assert shifts.changed_s == [1.0] * 3 and shifts.rate_hz == [0.0] * 3
    arrived = []

    def look(clock_s: float, **changes: Any) -> None:
        before = shifts.rate_hz[0] * 256 * 0.05
        looked_at(shifts, clock_s=clock_s, **changes)
        arrived.append(round(shifts.rate_hz[0] * (256 * 0.05 + 1.0) - before, 9))

    two = np.array([2, 0, 0])
    look(2.0, queued=two)  # two wait
    look(3.0, queued=two - [1, 0, 0], prefilling=1)  # one of them reads its prompt
    look(4.0, queued=two - [1, 0, 0], active=some(3))  # and decodes
    look(4.0, queued=two * 9)  # a second look at one moment: nothing new
    look(5.0, active=some(3, 4))  # the other
    look(6.0, active=some(3, 4, 5))  # one that never waited
    assert arrived[:3] == [2, 0, 0] and arrived[4:] == [0, 1]
    # Another request in the same slot is another.
    look(7.0, active=some(3, 4, 5), request=np.arange(16) + some(4) * 100)
    # One that waited and is gone again leaves no debt to those that come.
    look(8.0, active=some(3, 4, 5), request=np.arange(16) + some(4) * 100, queued=two)
    look(9.0, active=some(3, 4, 5), request=np.arange(16) + some(4) * 100)
    look(10.0, active=some(3, 4, 5), request=np.arange(16) + some(4) * 100, queued=two)
    assert arrived[6:] == [1, 2, 0, 2]
    assert looked_at(Shifts(3), clock_s=9.0).changed_s == [9.0] * 3


def test_features_tell_of_them() -> None:
    names = [f.name for f in feature_table(CLASSES)]
    shifts = looked_at(Shifts(3), clock_s=1.0)
    view = make_view(np.random.default_rng(0), clock_s=1.0 + 4095 * 0.05)
    with_memory = dict(zip(names, observe(view, TABLE.off(), shifts).tolist(), strict=True))
    assert with_memory["chat.since_shift"] == 1.0
    assert 0 < with_memory["chat.arrivals"] < 1
    # A second look at one moment tells the same; without a memory nothing ever changed.
    again = dict(zip(names, observe(view, TABLE.off(), shifts).tolist(), strict=True))
    assert again == with_memory
    without = dict(zip(names, observe(view, TABLE.off()).tolist(), strict=True))
    assert (without["chat.arrivals"], without["chat.since_shift"]) == (0.0, 1.0)


def test_a_fleet_remembers_what_single_environments_do() -> None:
    regimes = Regime(2.0, 0.3), Regime(1.0, 6.0)
    work = WorkloadConfig(name="shift", duration_s=3.0, regimes=regimes, max_tokens=3)
    options: dict[str, Any] = {
        "server": replay_server,
        "workload": work,
        "decide_every": 2,
    }
    alone = SyncVectorEnv([lambda: gymnasium.make(envs.SERVE_ID, **options)] * 2)
    fleet: Any = gymnasium.make_vec(envs.SERVE_ID, 2, **options).unwrapped
    alone.reset(seed=3)
    fleet.reset(seed=3)
    rng, changes, looked_s = np.random.default_rng(0), 0, [np.inf] * 2
    for _ in range(75):
        actions = rng.integers(0, TABLE.nvec, (2, len(TABLE.nvec)))
        ours, theirs = fleet.step(actions)[0], alone.step(actions)[0]
        np.testing.assert_array_equal(ours, theirs)
        for r, env in enumerate(alone.envs):
            observer = env.unwrapped._observer  # type: ignore[attr-defined]
            assert isinstance(observer, Aggregate)
            shifts, of = observer._shifts, fleet.serving.shifts
            for name in ("changed_s", "rate_hz"):
                assert of.classes[name][r].tolist() == getattr(shifts, name)
            fields = ("seconds", "total", "more", "fewer"), ("mean", "seen", "better", "worse")
            for known, names in zip((shifts._arrivals, shifts._acceptance), fields, strict=True):
                remembered = of.classes[r][list(names)].tolist()
                assert [tuple(row) for row in known] == remembered
            if shifts.looked_s > looked_s[r]:  # else an episode has just begun
                changes += sum(c == shifts.looked_s for c in shifts.changed_s)
            looked_s[r] = shifts.looked_s
    assert changes >= 5
