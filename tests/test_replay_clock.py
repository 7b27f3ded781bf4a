"""The modelled clock adds up by hand, equals the profile's prediction, and refuses to guess."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.errors import UserError
from engine.profile.hardware_profile import HardwareProfile, MemoryUse, Origin, PowerUse
from engine.profile.power_model import capped
from engine.protocol import Controller, Limits, Outcome, Plan, View, uniform_plan
from engine.replay.clock import ModelledClock, ProfileMeter, check_sizes
from engine.replay.server import ReplayConfig, ReplayServer
from tests.tiny_recording import asked, known_profile, recorded, replay_server

DECISION_S = 2**-12


class Fixed(Controller):
    """One tree for all, and what came of it."""

    def __init__(self, depth: int, width: int, nodes: int) -> None:
        self.tree = depth, width, nodes
        self.outcomes: list[Outcome] = []
        self.fewest_left: list[int] = []

    def plan(self, view: View) -> Plan:
        self.fewest_left.append(int(view.remaining_tokens[view.active].min()))
        return uniform_plan(view.limits, *self.tree)

    def observe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


def server() -> ReplayServer:
    return replay_server(decision_s=DECISION_S)


@pytest.fixture(scope="module")
def profile() -> HardwareProfile:
    """Of the tiny recording, which is made here and not while the tests are being collected."""
    return known_profile(recorded()[0])


def test_one_request_costs_what_its_passes_cost() -> None:
    """Prompt, one tree of depth 3, width 2 and 5 nodes, by the numbers in `known_profile`."""
    [request] = asked(1)
    prompt = len(request.prompt)
    controller = Fixed(3, 2, 5)
    engine = server().engine([request])
    view = engine.next_decision()
    assert view is not None
    prefill_s = 2**-7 + prompt * 2**-11 + 2**-10
    assert engine.clock_s == prefill_s == engine.chunks[0].seconds
    outcome = engine.run_iteration(view, controller)
    draft_s = 2**-9 + prompt * 2**-13 + prompt * 2**-21 + 2**-12  # the drafter reads the prompt
    draft_s += 2 * (2**-8 + 2 * 2**-14 + prompt * 2**-21)
    verify_s = 2**-6 + 6 * 2**-12 + prompt * 2**-20 + 2**-11
    host_s = 2**-10 + 6 * 2**-16 + 2**-14
    assert outcome.verified[0] == 6
    assert outcome.prefill_s == prefill_s
    assert outcome.draft_s == draft_s
    assert outcome.verify_s == verify_s
    assert outcome.other_s == host_s
    assert outcome.controller_s == DECISION_S
    assert engine.clock_s == prefill_s + draft_s + verify_s + host_s + DECISION_S
    watts = 10.0 + (prompt + 6 - 2) / 2 / 2  # of the mean of two passes, between 1 and 65 tokens
    assert outcome.energy_joules == pytest.approx(engine.iteration_s * watts)
    assert outcome.memory_bytes == 123_456

    # The next step's drafter catches up with what the first one brought, and nothing more.
    before, view = outcome, engine.next_decision()
    assert view is not None
    outcome = engine.run_iteration(view, controller)
    context = prompt + int(before.accepted_length[0])
    behind = int(before.accepted_length[0])
    draft_s = 2**-9 + behind * 2**-13 + context * 2**-21 + 2**-12
    draft_s += 2 * (2**-8 + 2 * 2**-14 + context * 2**-21)
    assert outcome.draft_s == pytest.approx(draft_s, rel=1e-12)


def test_steps_without_drafts_are_caught_up_with_later() -> None:
    [request] = asked(1)
    engine = server().engine([request])
    for tree in ((0, 1, 0), (0, 1, 0), (1, 1, 1)):
        view = engine.next_decision()
        assert view is not None
        outcome = engine.run_iteration(view, Fixed(*tree))
    context = len(request.prompt) + 2
    assert outcome.draft_s == pytest.approx(2**-9 + context * (2**-13 + 2**-21) + 2**-12)


@pytest.mark.parametrize("tree", [(0, 1, 0), (1, 3, 3), (4, 1, 4), (6, 8, 50)])
def test_a_step_takes_what_the_profile_predicts(tree: tuple[int, int, int]) -> None:
    controller = Fixed(*tree)
    engine = server().engine(asked(8))
    engine.serve(controller)
    error = [
        outcome.prediction_error
        for outcome, left in zip(controller.outcomes, controller.fewest_left, strict=True)
        if left > tree[0] + 1 and (outcome.verified[outcome.ran] == tree[2] + 1).all()
    ]
    assert len(error) > 5 and np.abs(error).max() < 1e-9
    assert sum(o.iteration_s for o in controller.outcomes) == pytest.approx(engine.clock_s)


def test_a_decision_costs_the_same_however_long_it_takes() -> None:
    class Slow(Fixed):
        def plan(self, view: View) -> Plan:
            np.linalg.svd(np.ones((40, 40)))
            return super().plan(view)

    quick, slow = Fixed(2, 2, 4), Slow(2, 2, 4)
    assert server().engine(asked(4)).serve(quick) == server().engine(asked(4)).serve(slow)
    assert {o.controller_s for o in slow.outcomes} == {DECISION_S}
    free = Fixed(2, 2, 4)
    replay_server(decision_s=0.0).engine(asked(4)).serve(free)
    assert {o.controller_s for o in free.outcomes} == {0.0}


def test_the_unloaded_token_time_is_the_profiles(profile: HardwareProfile) -> None:
    served = server()
    step_s = profile.step_s(0, 1, 0, 74) + DECISION_S
    assert served.unloaded_tpot_s == step_s
    assert "modelled" in served.describe()


def test_nothing_is_called_measured(profile: HardwareProfile) -> None:
    meter = ProfileMeter(profile)
    assert not meter.is_measured and not meter.end(2.0, 33.0).is_measured
    assert meter.end(2.0, 33.0).joules == 52.0
    view = server().engine(asked(1)).next_decision()
    assert view is not None and not view.power_is_measured


def test_reading_the_clock_moves_nothing(profile: HardwareProfile) -> None:
    clock = ModelledClock(profile)
    assert clock() == clock() == 0.0
    clock.host(1, 0, 1)
    assert clock() == clock() > 0.0


def test_a_profile_without_the_sizes_is_refused(profile: HardwareProfile) -> None:
    check_sizes(profile, Limits(slots=12))  # 12 · 65 tokens are three times 260
    with pytest.raises(UserError, match=r"13 requests .* 845 tokens .* up to 260 .* 3 times"):
        check_sizes(profile, Limits(slots=13))
    with pytest.raises(UserError, match="serve fewer slots"):
        replay_server(slots=13)


def test_a_profile_of_another_pair_is_refused(profile: HardwareProfile) -> None:
    manifest, recording = recorded()
    other = replace(profile, identity=replace(profile.identity, model="another"))
    with pytest.raises(UserError, match=r"pairs \(model tiny, profile another\)"):
        ReplayServer(manifest, recording, other)


def test_published_times_of_another_pair_are_labelled(profile: HardwareProfile) -> None:
    of = replace(profile.identity, model="llama", drafter="model", network="published")
    published = replace(profile, identity=of, origins={"verify": Origin("published", "a paper")})
    told = on(published).describe()
    assert "acceptance of tiny with eagle3, times of llama with model" in told
    assert "acceptance of" not in server().describe()


# -- power by stage, and under a cap -------------------------------------------------------------

STAGED = PowerUse((1.0, 65.0), (10.0, 42.0), True, {"draft": 8.0, "prefill": 40.0}, idle_watts=2.0)


def on(profile: HardwareProfile, **config: object) -> ReplayServer:
    """The tiny recording on a profile, decisions as above."""
    sizes = ReplayConfig(slots=4, capacity_tokens=192, decision_s=DECISION_S)
    return ReplayServer(*recorded(), profile, replace(sizes, **config))  # type: ignore[arg-type]


def test_every_stage_is_charged_its_own_watts(profile: HardwareProfile) -> None:
    """The first step of `test_one_request_costs_what_its_passes_cost`, by hand."""
    engine = on(replace(profile, power=STAGED)).engine(asked(1))
    assert engine.energy.watts == 2.0  # nothing is drawn but by idling before the first step
    view = engine.next_decision()
    assert view is not None
    outcome = engine.run_iteration(view, Fixed(3, 2, 5))
    verify_w = 10.0 + 5 / 64 * 32  # of six tokens, between 1 and 65
    idle_s = outcome.other_s + outcome.controller_s
    joules = 40 * outcome.prefill_s + 8 * outcome.draft_s + verify_w * outcome.verify_s + 2 * idle_s
    assert outcome.energy_joules == pytest.approx(joules, rel=1e-12)
    assert engine.energy.watts == pytest.approx(joules / engine.iteration_s)
    # A whole step at verification's watts would be another figure, and the second step its own.
    assert abs(outcome.energy_joules - verify_w * engine.iteration_s) > 0.1 * joules
    view = engine.next_decision()
    assert view is not None
    second = engine.run_iteration(view, Fixed(0, 1, 0))
    idle_s = second.other_s + second.controller_s
    assert second.energy_joules == pytest.approx(10 * second.verify_s + 2 * idle_s)


def test_a_power_cap_slows_what_draws_more_and_says_so(profile: HardwareProfile) -> None:
    staged = replace(profile, power=STAGED)
    free, tight = on(staged), on(staged, power_cap_watts=20.0)
    loose = on(staged, power_cap_watts=99.0)
    assert tight.profile == capped(staged, 20.0)
    tree, seen = Fixed(4, 4, 16), {}
    for name, served in (("free", free), ("tight", tight), ("loose", loose)):
        engine = served.engine(asked(4))
        engine.serve(tree)
        seen[name] = engine.clock_s
        assert max(o.energy_joules / o.iteration_s for o in tree.outcomes) <= 42.0
        if name == "tight":
            assert max(o.energy_joules / o.iteration_s for o in tree.outcomes) <= 20.0
        tree.outcomes.clear()
    assert seen["tight"] > seen["free"] == seen["loose"]
    assert "power capped at 20 W (modelled)" in tight.describe()
    assert "capped" not in free.describe()
    with pytest.raises(UserError, match="a power cap of 1 W"):
        on(staged, power_cap_watts=1.0)


# -- what was not measured -----------------------------------------------------------------------


def test_contexts_and_chunks_far_beyond_what_was_measured_are_refused(
    profile: HardwareProfile,
) -> None:
    limits = Limits(slots=4)
    check_sizes(profile, limits, 1017, 780)  # 3 times 5.3 times 64, and 3 times 260
    with pytest.raises(UserError, match=r"1018 tokens long, .* contexts of 64 tokens .* to 1018"):
        check_sizes(profile, limits, 1018, 64)
    with pytest.raises(UserError, match=r"read up to 781 tokens at a time, .* up to 260"):
        check_sizes(profile, limits, 100, 781)
    with pytest.raises(UserError, match="lower capacity_tokens"):
        replay_server(capacity_tokens=2000)
    served = server()
    served.settings = replace(served.settings, prefill_tokens=2000)
    served.engine(asked(1))  # no chunk is longer than the longest text
    long = served.recording.first_token.copy()
    long[1:] += 800
    served.recording = served.recording._replace(first_token=long)
    with pytest.raises(UserError, match="lower prefill_tokens"):
        served.engine(asked(1))


def test_a_card_has_room_for_so_many_tokens_unless_told(profile: HardwareProfile) -> None:
    memory = MemoryUse(1000, 10, resident_bytes=1000, device_bytes=5000)  # room for 350 tokens
    card = replace(profile, memory=memory)
    small = on(card, page_size=8)
    assert small.engine([]).backend.pool.pages == 350 // 8
    assert on(card, page_size=8, kv_pool_tokens=400).engine([]).backend.pool.pages == 400 // 8
    assert server().engine([]).backend.pool.pages == 4
