"""The two bandits: what they take by hand, what they regret on a toy, and that seeds decide."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from engine.errors import UserError
from engine.protocol import Controller, Limits, Outcome
from policies import registry
from policies.bandit_ucb import BanditUcb, pulled
from policies.nightjar import Clock, Nightjar, exploit
from tests.priced_views import priced_view
from tests.test_adaptivespec import outcome_of

LIMITS = Limits(slots=2, max_depth=4)
VIEW = priced_view(2, np.zeros(2), LIMITS, since_proposed=np.zeros((2, 4), np.int64))


def took(seconds: float, tokens: int, depth: int, draft_s: float = 0.0) -> Outcome:
    """An iteration of two requests, drafting included, behind 5 s of prompts."""
    outcome = outcome_of([depth, depth], [0, 0], LIMITS)
    emitted = np.array([tokens - tokens // 2, tokens // 2])
    return outcome._replace(
        accepted_length=emitted, prefill_s=5.0, draft_s=draft_s, verify_s=seconds - draft_s
    )


# -- BanditSpec's UCB ----------------------------------------------------------------------------


def test_the_bound_by_hand() -> None:
    # Round 12: √(6 ln 12 / 8) = 1.3652, √(6 ln 12 / 3) = 2.2293: 3.9 + 1.3652 < 3.1 + 2.2293.
    mean, pulls = np.array([3.9, 3.1]), np.array([8, 3])
    assert math.sqrt(6 * math.log(12) / 8) == pytest.approx(1.3652, abs=1e-4)
    assert pulled(mean, pulls, 12, 6.0) == 1
    assert pulled(mean, pulls, 12, 0.0) == 0
    assert pulled(mean, pulls, 12, 6.0, per_arm=False) == 0  # the same bonus for both
    assert pulled(np.array([9.0, 0.0]), np.array([3, 0]), 4, 0.0) == 1


def test_arms_in_turn_then_tokens_a_second() -> None:
    controller = BanditUcb(arms=(0, 2, (3, 2, 5)), exploration=0.0)
    controller.reset(LIMITS)
    plans = []
    for tokens in (2, 6, 4, 2, 6):
        plan = controller.plan(VIEW)
        plans.append((int(plan.depth[0]), int(plan.width[0]), int(plan.nodes[0])))
        controller.observe(took(2.0, tokens, plans[-1][0]))
    assert plans == [(0, 1, 0), (2, 1, 2), (3, 2, 5), (0, 1, 0), (2, 1, 2)]
    assert controller.mean.tolist() == [1.0, 3.0, 2.0]  # prompts are not counted
    assert int(controller.plan(VIEW).depth[0]) == 2
    # The engine drafted nothing of it: a round that tells nothing.
    controller.observe(took(2.0, 2, 0))
    assert controller.mean.tolist() == [1.0, 3.0, 2.0] and controller.pulls.sum() == 5


def test_scale_none_is_the_largest_reward_seen() -> None:
    controller = BanditUcb(arms=(1, 2), scale=None)
    controller.reset(LIMITS)
    for tokens in (200, 100, 200):
        depth = int(controller.plan(VIEW).depth[0])
        controller.observe(took(1.0, tokens, depth))
    # Rewards of 200, 100, 200 a second are 1 and 0.5: bounds 1 + √(6 ln 4 / 2) = 3.039 and
    # 0.5 + √(6 ln 4 / 1) = 3.384. As they are, the first would be far ahead.
    assert int(controller.plan(VIEW).depth[0]) == 2
    controller.scale = 1.0
    assert int(controller.plan(VIEW).depth[0]) == 1


# -- Nightjar ------------------------------------------------------------------------------------


def test_blocks_double_and_bins_keep_the_arm() -> None:
    clock = Clock()
    begins = [(clock.tick(), clock.block, clock.bin) for _ in range(31)]
    # Blocks of 1, 2, 4, 8 and 16 iterations, in bins of ⌊√H⌋ = 1, 1, 2, 2 and 4.
    starts = [i for i, (begun, _, _) in enumerate(begins) if begun]
    assert starts == [0, 1, 2, 3, 5, 7, 9, 11, 13, 15, 19, 23, 27]
    assert [begins[i][1:] for i in starts[:7]] == [
        (1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2)
    ]  # fmt: skip


def test_resuming_is_priced_by_hand() -> None:
    # 0.050 s a token without drafts, 0.045 with two: resuming for 0.02 s adds 0.01: 0.055 loses.
    latency_s = np.array([0.050, np.inf, 0.045])
    assert exploit(latency_s, resumes=False, switch_s=0.02) == 2
    assert exploit(latency_s, resumes=True, switch_s=0.02) == 0
    assert exploit(latency_s, resumes=True, switch_s=0.009) == 2


def test_the_price_of_resuming_is_learnt() -> None:
    controller = Nightjar(longest=1)
    controller.reset(LIMITS)
    # It drafts, at 1 s, and 4 s for 4 tokens: 2 requests · 4 s / 4 tokens.
    controller._last = 1
    force(controller, 1)
    controller.plan(VIEW)
    controller.observe(took(4.0, 4, 1, draft_s=1.0))
    bandit = controller.bandits[2]
    assert bandit.latency_s.known().tolist() == [np.inf, 2.0]
    # Then it rests, and the one farthest behind lacks 3 tokens. Resuming drafts for 2.2 s: 1.2 s
    # more for 2 · 3 tokens, 0.2 s each. What is left of 5.2 s is 4 s, as before.
    controller._last = 0
    force(controller, 1)
    behind = np.array([[3, 9, 9, 9], [2, 9, 9, 9]])
    controller.plan(VIEW._replace(since_proposed=behind, tokens_out=np.array([50, 50])))
    controller.observe(took(5.2, 4, 1, draft_s=2.2))
    assert controller.switch_token_s == pytest.approx(0.2)
    assert bandit.latency_s.value[1] == pytest.approx(2.0) and bandit.latency_s.count[1] == 2
    assert bandit.draft_s.count[1] == 1


def force(controller: Nightjar, arm: int) -> None:
    """Two requests are to play `arm`, whatever else."""
    bandit = controller.bandits.setdefault(2, controller._bandit)
    bandit.arm, bandit.clock.left_in_bin, bandit.clock.left_in_block = arm, 1, 2


def test_each_batch_size_learns_for_itself() -> None:
    controller = Nightjar(longest=3)
    controller.reset(LIMITS)
    for _ in range(300):
        for active, best in ((np.array([True, True]), 0), (np.array([True, False]), 3)):
            depth = int(controller.plan(VIEW._replace(active=active)).depth[0])
            outcome = took(1.0 + 0.2 * abs(depth - best), 2 * int(active.sum()), depth)
            controller.observe(outcome._replace(ran=active))
    latencies = {size: bandit.latency_s.known() for size, bandit in controller.bandits.items()}
    assert sorted(latencies) == [1, 2]
    assert int(latencies[2].argmin()) == 0 and int(latencies[1].argmin()) == 3


# -- both, on a toy ------------------------------------------------------------------------------

GAP = 2.5


def regret(
    controller: Controller, rounds: int, seed: int, best: Callable[[int], int]
) -> tuple[float, list[int]]:
    """Tokens a second lost against the best arm, which may change, and what was drafted.

    Each token drafted more or less than the best costs `GAP` of 12 tokens a second.
    """
    rng = np.random.default_rng(seed)
    controller.reset(LIMITS)
    lost, depths = 0.0, []
    for t in range(rounds):
        depth = int(controller.plan(VIEW).depth[0])
        rate = 12.0 - GAP * abs(depth - best(t))
        controller.observe(took(2 / max(rate + rng.normal(0, 0.5), 1.0), 2, depth))
        lost += 12.0 - rate
        depths.append(depth)
    return lost, depths


@pytest.mark.parametrize("spec", ["bandit-ucb", "nightjar(longest=4)"])
@pytest.mark.parametrize("best", [1, 3])
def test_regret_grows_ever_slower(spec: str, best: int) -> None:
    short, _ = regret(registry.make(spec), 400, 0, lambda t: best)
    long, depths = regret(registry.make(spec), 1600, 0, lambda t: best)
    at_random = 1600 * np.mean([GAP * abs(k - best) for k in range(1, 5)])
    assert long < 3 * short and long < at_random / 4
    assert depths[-400:].count(best) > 300


def test_the_released_bonus_costs_regret_where_the_best_changes() -> None:
    """And so is the textbook's form found to be the better baseline."""

    def change(t: int) -> int:
        return 1 if t < 60 else 4

    released = [regret(BanditUcb(per_arm=False), 400, seed, change)[0] for seed in range(5)]
    per_arm = [regret(BanditUcb(), 400, seed, change)[0] for seed in range(5)]
    assert np.mean(per_arm) < 0.8 * np.mean(released)


@pytest.mark.parametrize("spec", ["bandit-ucb", "nightjar", "nightjar(seed=3)"])
def test_deterministic_under_a_seed(spec: str) -> None:
    controller = registry.make(spec)
    first = regret(controller, 300, 1, lambda t: 3)
    assert regret(controller, 300, 1, lambda t: 3) == first  # after a reset, too
    assert regret(registry.make(spec), 300, 1, lambda t: 3) == first
    if spec == "nightjar":
        assert regret(Nightjar(seed=1), 300, 1, lambda t: 3) != first


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("bandit-ucb(arms=(1,))", "arms is (1,)"),
        ("bandit-ucb(arms=(1, -1))", "arms is (1, -1)"),
        ("bandit-ucb(arms=(1, (2, 0, 3)))", "(2, 0, 3)"),
        ("bandit-ucb(exploration=-1)", "exploration is -1"),
        ("bandit-ucb(scale=0)", "scale is 0"),
        ("nightjar(longest=0)", "longest is 0"),
        ("nightjar(switch_token_s=-1.0)", "switch_token_s is -1.0"),
        ("nightjar(seed=-1)", "seed is -1"),
    ],
)
def test_bad_parameters_are_told(spec: str, says: str) -> None:
    with pytest.raises(UserError, match="expected") as caught:
        registry.make(spec)
    assert says in str(caught.value)
