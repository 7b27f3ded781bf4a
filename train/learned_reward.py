"""What lies between the environment's rewards and those that are learned from, in order.

Limits charge, centring takes the mean, `TimedSteps` scales and bootstraps, and a shared baseline is
taken from the advantages at last. Without options it is `TimedSteps` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stable_baselines3.common.callbacks import BaseCallback

from train.algorithms.centring import Centring
from train.algorithms.lagrangian import Gains, Limits
from train.algorithms.shared_baseline import SharedBaseline
from train.algorithms.timing import TimedSteps
from train.config import TrainConfig
from train.task_config import limits_of

if TYPE_CHECKING:
    from engine.server import Server


def learned_reward(server: Server, config: TrainConfig, scale: float) -> list[BaseCallback]:
    """The callbacks; rewards are multiplied by `scale`."""
    reward, shared = config.reward, config.episodes.shared_arrivals
    callbacks: list[BaseCallback] = []
    if limits := limits_of(reward.limits):
        callbacks.append(
            Limits(
                limits,
                server.unloaded_tpot_s,
                server.settings.limits.slots,
                Gains(*reward.limit_gains),
                reward.limit_scaling,
            )
        )
    if reward.centre_rewards:
        callbacks.append(Centring(scale))
    callbacks.append(TimedSteps(scale))
    if shared > 1:
        callbacks.append(SharedBaseline(shared))
    return callbacks
