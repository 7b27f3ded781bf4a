"""Limits kept by prices that learn: PPO-Lagrangian with a PID multiplier (Stooke et al. 2020).

What is learned from is reward - Σ λ · cost, with a multiplier λ for each limit. The cost of a step
is by how much it exceeds the limit: missed requests, of REQUEST_TOKENS each, beyond the share of
those that ended; token times waited beyond the share; energy beyond the limit's, in token times at
the limit. So λ = 1 makes an excess of 100 % cost what full slots earn at most without speculation.
After every rollout a PID controller moves λ by the excess measured in it. The rewards that the
environment tells stay what they were. For algorithms that forget a rollout after its update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from train.algorithms.carried import Kept
from train.algorithms.timing import ELAPSED

REQUEST_TOKENS = 64.0
"""So many token times of a slot an ended request stands for, in the cost of violations (ours)."""
MOST = 10.0
"""No multiplier grows beyond: there, what is limited is all that counts (ours)."""
MOST_EXCESS = 1.0
"""A larger excess moves the multiplier no faster."""

Info = Mapping[str, Any]


class Measured(NamedTuple):
    """How a limited rate is read from a step's info: amount / exposure, both summed."""

    amount: Callable[[Info], float]
    exposure: Callable[[Info], float]
    is_per_request: bool = False
    """Whether exposure counts requests; else seconds."""
    is_share: bool = True
    """Whether the rate is a share as it stands; else its excess is one of the limit."""


def _elapsed_s(info: Info) -> float:
    return float(info[ELAPSED])


MEASURED = {
    "violations": Measured(lambda i: float(i["missed"]), lambda i: float(i["finished"]), True),
    "power": Measured(lambda i: float(i["energy_joules"]), _elapsed_s, is_share=False),
    "waiting": Measured(lambda i: float(i["waiting"]) * _elapsed_s(i), _elapsed_s),
}
"""Missed per ended request, mean watts, mean share waited."""


class Gains(NamedTuple):
    """Of a PID controller whose error is the excess over the limit, a step a rollout."""

    proportional: float = 0.5
    integral: float = 0.02
    derivative: float = 0.5
    smoothing: float = 0.0
    """Weight of what was before in the proportional and the derivative term. Lag makes a policy
    swing around its limit, so it is for rollouts too short to measure a rate."""


@dataclass
class Multiplier:
    """λ ≥ 0 of one limit, and all that its controller remembers."""

    value: float = 0.0
    integral: float = 0.0
    excess: float = 0.0
    """Smoothed."""
    is_new: bool = True
    """Nothing was measured yet."""

    def update(self, excess: float, gains: Gains) -> None:
        """Stooke et al. 2020, algorithm 2; `excess` over the limit, negative where it is kept.

        The integral stays within [0, what alone gives MOST], so it never winds up on either side.
        """
        excess = min(excess, MOST_EXCESS)
        before = excess if self.is_new else self.excess
        self.excess = gains.smoothing * before + (1.0 - gains.smoothing) * excess
        most = MOST / gains.integral if gains.integral > 0 else 0.0
        self.integral = min(max(self.integral + excess, 0.0), most)
        rise = max(self.excess - before, 0.0)
        wanted = (
            gains.proportional * self.excess
            + gains.integral * self.integral
            + gains.derivative * rise
        )
        self.value = min(max(wanted, 0.0), MOST)
        self.is_new = False


class Limits(Kept):
    """Charges steps for what is limited; belongs before `TimedSteps`, which scales."""

    def __init__(
        self,
        limits: Mapping[str, float],
        token_time_s: float,
        slots: int,
        gains: Gains | None = None,
        scaling: bool = True,
    ) -> None:
        """`limits` by name as in MEASURED, all above 0; `token_time_s` is the unloaded one.

        `scaling` divides what is learned from by 1 + Σ λ.
        """
        super().__init__()
        self.limits, self.gains, self.scaling = dict(limits), gains or Gains(), scaling
        self._scale = {n: 1.0 if MEASURED[n].is_share else limits[n] for n in limits}
        self._units = {
            n: (REQUEST_TOKENS / slots if MEASURED[n].is_per_request else 1.0 / token_time_s)
            / self._scale[n]
            for n in limits
        }
        self.multipliers = {name: Multiplier() for name in limits}
        self._begin()

    def _begin(self) -> None:
        self._sums = np.zeros((2, len(self.limits)))  # amount and exposure of this rollout

    def state(self) -> dict[str, Any]:
        """All that is remembered from one rollout to the next."""
        return {name: asdict(multiplier) for name, multiplier in self.multipliers.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; a limit that was not there begins anew."""
        self.multipliers = {name: Multiplier(**state.get(name, {})) for name in self.limits}

    def _on_rollout_start(self) -> None:
        self._begin()

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        charged = np.zeros(len(infos))
        for k, (name, limit) in enumerate(self.limits.items()):
            of, value = MEASURED[name], self.multipliers[name].value
            amount = np.array([of.amount(info) for info in infos])
            exposure = np.array([of.exposure(info) for info in infos])
            self._sums[:, k] += amount.sum(), exposure.sum()
            charged += value * self._units[name] * (amount - limit * exposure)
        rewards = self.locals["rewards"]
        rewards -= charged
        if self.scaling:
            rewards /= 1.0 + sum(m.value for m in self.multipliers.values())
        return True

    def _on_rollout_end(self) -> None:
        for (name, limit), (amount, exposure) in zip(
            self.limits.items(), self._sums.T.tolist(), strict=True
        ):
            multiplier = self.multipliers[name]
            rate = amount / exposure if exposure > 0 else math.nan
            if exposure > 0:  # else nothing was seen, and nothing is known
                multiplier.update((rate - limit) / self._scale[name], self.gains)
                self.logger.record(f"limits/{name}/rate", rate)
            self.logger.record(f"limits/{name}/limit", limit)
            self.logger.record(f"limits/{name}/multiplier", multiplier.value)
