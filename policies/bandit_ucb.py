"""A bandit over fixed trees: whichever has the highest upper confidence bound on tokens a second.

BanditSpec's UCB (Hou et al. 2025, arXiv 2505.15141; sail-sg/BanditSpec, generate_utils.py;
research/slo_serving.md §3.11). Arms are chains of 1 to 4 tokens, the reward x of a round is its
tokens a second, and after some rounds in turn, in round t the arm with the largest

    mean(x) + √(6 ln t / N),   N the pulls of that arm

is pulled. The released code divides by the pulls of all arms together, which is the same bonus for
every one and so no exploration at all after its 7 rounds in turn (research/rl_toolkits.md measured
what that costs under a shift). `per_arm=False` is that form, for comparison alone.

*Ours*: arms may be any trees: k for a chain, 0 for ordinary decoding, (depth, width, nodes) for a
beam; the best is one for all batch sizes, as there. `scale` is how many tokens a second count as 1
in a mean; the source takes them as they are (1.0), which makes its bonus a matter of how fast the
machine is, and None takes the largest reward seen, so that rewards lie in [0, 1] as the bound
supposes. A round is an iteration without the reading of prompts, and counts for nothing where the
engine drafted none of what the arm says.

Probe rule after depth 0: an arm of depth 0 is an arm; the bonus of the others grows while it is
pulled.
"""

from __future__ import annotations

import math

import numpy as np

from engine.errors import UserError
from engine.protocol import Controller, Floats, Ints, Limits, Outcome, Plan, View, uniform_plan
from policies.spelling import spelled

Arm = int | tuple[int, int, int]
"""A chain's length, or depth, width and nodes of a beam."""

ARMS: tuple[Arm, ...] = (1, 2, 3, 4)
EXPLORATION, SCALE = 6.0, 1.0


def pulled(mean: Floats, pulls: Ints, rounds: int, exploration: float, per_arm: bool = True) -> int:
    """The arm with the highest bound [A] in round `rounds`; one never pulled goes first."""
    if not pulls.all():
        return int(np.argmin(pulls))
    counted = pulls if per_arm else pulls.sum()
    return int(np.argmax(mean + np.sqrt(exploration * math.log(rounds) / counted)))


class BanditUcb(Controller):
    """One tree for the batch, pulled by its upper confidence bound."""

    def __init__(
        self,
        arms: tuple[Arm, ...] = ARMS,
        exploration: float = EXPLORATION,
        scale: float | None = SCALE,
        per_arm: bool = True,
    ) -> None:
        """The arms, the factor under the root, and what the module says. Raises UserError."""
        self.name = spelled(
            "bandit-ucb", BanditUcb, arms=arms, exploration=exploration, scale=scale,
            per_arm=per_arm,
        )  # fmt: skip
        if not isinstance(arms, tuple) or len(arms) < 2 or not all(map(_is_arm, arms)):
            raise UserError(
                f"{self.name}: arms is {arms!r}; expected at least two, each a chain's length from "
                "0 on or (depth, width, nodes) from 1 on"
            )
        if not 0.0 <= exploration < float("inf"):
            raise UserError(
                f"{self.name}: exploration is {exploration!r}; expected a number from 0 on"
            )
        if scale is not None and not 0.0 < scale < float("inf"):
            raise UserError(
                f"{self.name}: scale is {scale!r}; expected tokens a second above 0, or None"
            )
        self.arms, self.exploration, self.scale, self.per_arm = arms, exploration, scale, per_arm
        self.reset(Limits())

    def reset(self, limits: Limits) -> None:
        """No arm was pulled."""
        self.mean = np.zeros(len(self.arms))
        """Tokens a second of each arm."""
        self.pulls = np.zeros(len(self.arms), np.int64)
        self.best_seen = 0.0
        self.arm = 0
        """The one that the latest plan pulled."""

    def plan(self, view: View) -> Plan:
        """The arm's tree for everybody."""
        rounds = int(self.pulls.sum()) + 1
        if rounds < 2 * len(self.arms):
            self.arm = (rounds - 1) % len(self.arms)
        else:
            scale = self.best_seen if self.scale is None else self.scale
            mean = self.mean / scale if scale > 0 else self.mean
            self.arm = pulled(mean, self.pulls, rounds, self.exploration, self.per_arm)
        arm, limits = self.arms[self.arm], view.limits
        depth, width, nodes = arm if isinstance(arm, tuple) else (arm, 1, arm)
        return uniform_plan(
            limits,
            min(depth, limits.max_depth),
            min(width, limits.max_width),
            min(nodes, limits.max_nodes),
        )

    def observe(self, outcome: Outcome) -> None:
        """The round's tokens a second are the arm's reward."""
        seconds = outcome.iteration_s - outcome.prefill_s
        drafts = self.arms[self.arm] != 0
        if not outcome.ran.any() or seconds <= 0 or drafts != bool(outcome.drafted.any()):
            return
        reward = float(outcome.accepted_length[outcome.ran].sum()) / seconds
        self.pulls[self.arm] += 1
        self.mean[self.arm] += (reward - self.mean[self.arm]) / self.pulls[self.arm]
        self.best_seen = max(self.best_seen, reward)


def _is_arm(arm: Arm) -> bool:
    if isinstance(arm, tuple):
        return len(arm) == 3 and all(type(size) is int and size >= 1 for size in arm)
    return type(arm) is int and arm >= 0
