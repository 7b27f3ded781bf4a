"""A power cap slows what draws and computes much, and leaves the rest alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from engine.errors import UserError
from engine.profile.cost_model import Curve, PassCost
from engine.profile.hardware_profile import HardwareProfile, PowerUse
from engine.profile.power_model import STAGES, StagePower, capped
from engine.profile.published import names, open_profile

CAP = 400.0


@pytest.fixture(scope="module")
def profile() -> HardwareProfile:
    """Round figures: 10 ms of reading up to 200 tokens, then 50 µs a token; 500 to 700 W, idle 100.

    Measured to 800 tokens, so that arithmetic's slope, that from 400 to 800, is 50 µs.
    """
    verify = Curve(10e-3, (0.0, 200.0), (0.0, 50e-6))
    return dataclasses.replace(
        open_profile("llama-8b-h100"),
        verify=PassCost(verify, kv_token_s=1e-7, attended_s=1e-9),
        draft_first=PassCost(Curve(1e-3)),
        draft_next=PassCost(Curve(1e-3)),
        prefill=PassCost(Curve(0.0, (0.0,), (50e-6,)), attended_s=1e-9, request_s=1e-3),
        most_tokens=800,
        power=PowerUse(
            (1.0, 200.0, 800.0), (500.0, 600.0, 700.0), False, {"draft": 300.0, "prefill": 700.0},
            idle_watts=100.0, limit_watts=700.0,
        ),
    )  # fmt: skip


def test_the_slowdown_is_that_of_the_formula(profile: HardwareProfile) -> None:
    # 200 tokens: 600 W. clock = (300 / 500)^(1 / 2.6) = 0.8216. Arithmetic is 200 · 50 µs of 10 ms,
    # all of it: 1 / 0.8216 = 1.2171. One token: 500 W, (300 / 400)^(1 / 2.6) = 0.8952; arithmetic
    # 0.005, counted as the least share, 0.25: 1 + 0.25 · (1 / 0.8952 - 1) = 1.0293.
    stages = StagePower(profile)
    assert stages.clock("verify", 200, CAP) == pytest.approx(0.8216, abs=1e-4)
    assert stages.slowdown("verify", 200, CAP) == pytest.approx(1.2171, abs=1e-4)
    assert stages.slowdown("verify", 1, CAP) == pytest.approx(1.0293, abs=1e-4)
    # Prefill is all arithmetic at 700 W: (300 / 600)^(1 / 2.6) = 0.7660, 1.3055.
    assert stages.slowdown("prefill", 64, CAP) == pytest.approx(1.3055, abs=1e-4)
    assert stages.slowdown("draft_next", 16, CAP) == 1.0  # 300 W is below the cap
    assert stages.slowdown("host", 16, CAP) == 1.0


def test_published_caps_are_met_as_said() -> None:
    # An H100's prefill at half of 700 W, idle 75: (275 / 625)^(1 / 2.6) = 0.7293, 1.371 times as
    # long; Splitwise's simulator says 1.3.
    h100 = StagePower(open_profile("llama-8b-h100"))
    assert h100.slowdown("prefill", 512, 350.0) == pytest.approx(1.371, abs=1e-3)


def test_larger_trees_suffer_more(profile: HardwareProfile) -> None:
    stages = StagePower(profile)
    slowed = [stages.slowdown("verify", n, CAP) for n in (1, 16, 64, 128, 200, 400, 800)]
    assert slowed == sorted(slowed)
    assert slowed[-1] > slowed[0] + 0.2
    for name in ("llama-8b-a100", "llama-70b-h100"):  # deep drafting, on real curves
        published = StagePower(open_profile(name))
        cap = 0.55 * published.profile.power.limit_watts
        assert published.slowdown("verify", 256, cap) > published.slowdown("verify", 8, cap) + 0.1


def test_a_lower_cap_is_never_faster(profile: HardwareProfile) -> None:
    stages = StagePower(profile)
    for stage in STAGES:
        slowed = [stages.slowdown(stage, 128, cap) for cap in (900.0, 700.0, 500.0, 300.0, 150.0)]
        assert slowed == sorted(slowed)
        assert slowed[0] == 1.0


def test_no_more_is_drawn_than_the_cap(profile: HardwareProfile) -> None:
    under = capped(profile, CAP)
    assert max(under.power.watts) == CAP
    assert under.power.stages == {"draft": 300.0, "prefill": CAP}
    stages = StagePower(profile)
    assert stages.joules("verify", 200, 0.02, CAP) == pytest.approx(8.0)
    # At the lowest clock, 0.3, the draw is 100 + 500 · 0.3^2.6 = 121.9 W, and no cap changes it.
    assert stages.watts("verify", 200, 101.0) == pytest.approx(121.9, abs=0.1)


def test_a_capped_profile_is_the_profile_times_the_slowdown(profile: HardwareProfile) -> None:
    under, stages = capped(profile, CAP), StagePower(profile)
    for n in (1, 2, 64, 200, 800):
        expected = profile.verify.curve.at(n) * stages.slowdown("verify", n, CAP)
        assert under.verify.curve.at(n) == pytest.approx(expected, rel=1e-9)
    assert under.verify.kv_token_s == profile.verify.kv_token_s  # memory keeps its clock
    # Arithmetic of attention goes with the slowest clock, 0.7660.
    assert under.verify.attended_s == pytest.approx(1.3055e-9, rel=1e-4)
    assert under.draft_next.at(4, 0, 1) == profile.draft_next.at(4, 0, 1)
    assert under.host == profile.host
    assert under.origin("verify").kind == "modelled"
    assert "400 W" in under.origin("verify").source


@pytest.mark.parametrize("name", names())
def test_a_capped_staircase_keeps_its_steps_and_never_falls(name: str) -> None:
    free = open_profile(name)
    cap = 0.6 * free.power.limit_watts
    under, stages = capped(free, cap), StagePower(free)
    counts = np.arange(1, free.most_tokens + 1)
    free_s, under_s = free.verify_s(counts), under.verify_s(counts)
    assert (np.diff(under_s) >= -1e-12).all()
    assert (under_s >= free_s - 1e-12).all()
    assert set(under.verify.curve.jumps_at) == set(free.verify.curve.jumps_at)
    for n in free.verify.curve.jumps_at:
        for count in (n, n + 1):
            expected = free.verify.curve.at(count) * stages.slowdown("verify", count, cap)
            assert under.verify.curve.at(count) == pytest.approx(expected, rel=5e-3)


def test_a_cap_above_all_that_is_drawn_changes_nothing(profile: HardwareProfile) -> None:
    assert capped(profile, 700.0) is profile


def test_idle_power_that_is_not_known_is_a_share_of_the_limit(profile: HardwareProfile) -> None:
    power = dataclasses.replace(profile.power, idle_watts=0.0)
    unknown = dataclasses.replace(profile, power=power)
    assert StagePower(unknown).idle_watts == pytest.approx(91.0)  # 0.13 · 700


@pytest.mark.parametrize("cap", [100.0, 0.0, -5.0, float("nan")])
def test_a_cap_that_cannot_be_kept_is_refused(cap: float, profile: HardwareProfile) -> None:
    with pytest.raises(UserError, match="draws 100 W with nothing to do; give a cap above that"):
        capped(profile, cap)


def test_an_unknown_stage_is_refused(profile: HardwareProfile) -> None:
    with pytest.raises(UserError, match="no stage is called 'sample'; expected one of prefill"):
        StagePower(profile).watts("sample", 1)


@pytest.mark.parametrize("name", names())
def test_many_sizes_at_once_are_each_alone(name: str) -> None:
    sizes = np.arange(0, 3000, 7)
    free = open_profile(name)
    for profile in (free, capped(free, 0.7 * max(free.power.watts))):
        stages = StagePower(profile)
        for stage in STAGES:
            curve = getattr(profile, stage).curve
            assert curve.at_each(sizes).tolist() == [curve.at(float(n)) for n in sizes.tolist()]
            alone = [stages.watts(stage, n) for n in sizes.tolist()]
            assert stages.free_watts(stage, sizes).tolist() == alone
