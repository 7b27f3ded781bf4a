"""Options that say what is learned: what a step earns, which limits hold, and on which episodes.

Light on imports, since `--help` reads it. The reward itself is `envs.reward`'s, limits and centring
are `train.algorithms`'; episodes are put together by `train.training_draw`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import UserError

if TYPE_CHECKING:
    from envs.reward import GoodputReward

LIMITED = {"violations": 1.0, "power": math.inf, "waiting": 1.0}
"""What a limit may be set on, and what it must be below."""
GAINS = (0.5, 0.02, 0.5, 0.0)


@dataclass(frozen=True)
class Reward:
    """What training rewards. The defaults are the environment's own."""

    violation_tokens: float = 8.0
    """Valid tokens that a request costs which ends without meeting its objectives."""
    time_price: float = 0.0
    """Valid tokens per slot that an unloaded token time costs."""
    tail_price: float = 0.0
    """Valid tokens that a token time costs for each token by which a request is behind."""
    waiting_price: float = 0.0
    """Valid tokens per slot that a token time costs while somebody has waited 1,024 token times;
    shorter waits cost their share."""
    joule_tokens: float = 0.0
    """Valid tokens that a joule costs."""
    switch_tokens: float = 0.0
    """Valid tokens that it costs to change the plan of a class."""
    limits: tuple[str, ...] = ()
    """Limits that the trained policy shall keep to, as NAME=LIMIT, each by a price that rises while
    it is broken: violations=0.1 (missed per ended request), power=150 (mean watts), waiting=0.2
    (mean share of 1,024 token times that who waits longest has waited)."""
    limit_gains: tuple[float, float, float, float] = GAINS
    """Of these prices' PID control, an update: proportional, integral, derivative, and the weight
    of what was before in the first and the last of these, below 1."""
    limit_scaling: bool = True
    """Divide what is learned from by 1 + the sum of the prices, so that its size stays."""
    centre_rewards: bool = False
    """Subtract the mean reward rate, so that values stay near 0 however long half-life-s is."""

    def goodput(self) -> GoodputReward:
        """The environment's reward at these prices."""
        from envs.reward import GoodputReward

        return GoodputReward(
            violation_tokens=self.violation_tokens,
            price=self.time_price,
            tail_price=self.tail_price,
            waiting_price=self.waiting_price,
            joule_tokens=self.joule_tokens,
            switch_tokens=self.switch_tokens,
        )

    def check(self) -> None:
        """Raise UserError for a value that cannot be meant."""
        for name in (
            *("violation_tokens", "time_price", "tail_price", "waiting_price", "joule_tokens"),
            *("switch_tokens", "limit_gains"),
        ):
            value = getattr(self, name)
            several = value if isinstance(value, tuple) else (value,)
            if not all(math.isfinite(one) and one >= 0 for one in several):
                shown = " ".join(f"{one:g}" for one in several)
                raise UserError(f"--{_flag(name)} {shown}: expected numbers of at least 0")
        if self.limit_gains[3] >= 1:
            raise UserError(
                f"--limit-gains … {self.limit_gains[3]:g}: expected a weight below 1, or nothing "
                "new would ever count"
            )
        limits_of(self.limits)


@dataclass(frozen=True)
class Episodes:
    """On which episodes it is trained. Compared is always on the workload itself."""

    shared_arrivals: int = 1
    """Engines that are given the same episodes, so that an update compares what they made of them;
    a divisor of n_envs, on replay. 1: every engine has its own."""
    randomise: bool = False
    """Disturb every episode at random: load, acceptance, draft time, memory and power cap, in the
    ranges of train/randomised.py."""
    curriculum: bool = False
    """Begin with one regime, then half of the shifts' range, and from half of training on the
    workload itself."""

    def check(self) -> None:
        """Raise UserError for a value that cannot be meant."""
        if self.shared_arrivals < 1:
            raise UserError(
                f"--shared-arrivals {self.shared_arrivals}: expected a number of at least 1"
            )


def limits_of(assignments: tuple[str, ...]) -> dict[str, float]:
    """Limits by name from NAME=LIMIT. Raises UserError."""
    found: dict[str, float] = {}
    for text in assignments:
        name, _, value = text.partition("=")
        if name not in LIMITED or name in found:
            raise UserError(
                f"--limits {text}: expected each of {', '.join(LIMITED)} once at most, such as "
                "violations=0.1"
            )
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if not 0 < limit < LIMITED[name]:
            most = "" if LIMITED[name] == math.inf else f" and below {LIMITED[name]:g}"
            raise UserError(f"--limits {text}: expected a number above 0{most}")
        found[name] = limit
    return found


def check_task(
    reward: Reward, episodes: Episodes, policy: str, is_off_policy: bool, n_envs: int
) -> None:
    """Raise UserError for what does not go together, or cannot be meant.

    `n_envs` engines are stepped at once by the algorithm `policy`.
    """
    reward.check()
    episodes.check()
    if reward.limits and is_off_policy:
        raise UserError(
            f"--limits {' '.join(reward.limits)} --policy {policy}: a replay buffer would hold "
            "rewards at prices that no longer hold; take ppo, maskable-ppo, recurrent-ppo or a2c"
        )
    shared = episodes.shared_arrivals
    if shared == 1:
        return
    if is_off_policy:
        raise UserError(
            f"--shared-arrivals {shared} --policy {policy}: compares within an update, and this "
            "algorithm draws its updates from long ago; take ppo, maskable-ppo, recurrent-ppo or "
            "a2c"
        )
    if n_envs % shared:
        raise UserError(
            f"--shared-arrivals {shared}: expected a divisor of the {n_envs} engines (--set n_envs)"
        )


def _flag(name: str) -> str:
    return name.replace("_", "-")
