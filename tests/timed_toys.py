"""A world of one state for every learning algorithm, and what a trained model says of it.

Its two actions last differently, so the right one depends on how time is discounted; it is cut
every few steps, so its value depends on how a cut is bootstrapped.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

from train.algorithms.base import Learner
from train.algorithms.registry import ALGORITHMS
from train.algorithms.timing import TimedSteps

SPACE = spaces.Box(0.0, 1.0, (1,), np.float32)
ACTIONS: dict[str, spaces.Space[Any]] = {
    "tiers": spaces.MultiDiscrete([2]),
    "masked tiers": spaces.MultiDiscrete([2]),
    "presets": spaces.Discrete(2),
    "box": spaces.Box(-1.0, 1.0, (1,), np.float32),
}
NOTHING = np.zeros((1, 1), np.float32)
SCALE = 0.1  # of rewards, as training scales them


class Toy(gym.Env[np.ndarray, Any]):
    """Action i pays `pays[i]` and lasts `lasts[i]` seconds; of a box the sign chooses."""

    observation_space = SPACE

    def __init__(self, acts_on: str, pays: list[float], lasts: list[float], cut_after: int) -> None:
        self.action_space = ACTIONS[acts_on]
        self.pays, self.lasts, self.cut_after = pays, lasts, cut_after
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return NOTHING[0].copy(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        chosen = int(np.asarray(action).reshape(-1)[0] > 0)
        cut = self.steps >= self.cut_after
        info = {"elapsed_s": self.lasts[chosen]}
        return NOTHING[0].copy(), self.pays[chosen], False, cut, info

    def action_masks(self) -> np.ndarray:
        return np.ones(2, np.bool_)


SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 16, "batch_size": 128, "n_epochs": 8},
    "maskable-ppo": {"n_steps": 16, "batch_size": 128, "n_epochs": 8},
    "recurrent-ppo": {"n_steps": 16, "batch_size": 128, "n_epochs": 8},
    "a2c": {"n_steps": 8, "normalize_advantage": True},
    "dqn": {"target_update_interval": 40, "exploration_initial_eps": 0.3},
    "qrdqn": {"target_update_interval": 40, "exploration_initial_eps": 0.3},
    "sac": {"ent_coef": 1e-3, "tau": 0.1},
    "tqc": {"ent_coef": 1e-4, "tau": 0.1, "top_quantiles_to_drop_per_net": 0},
}
NETWORKS: dict[str, dict[str, Any]] = {
    "recurrent-ppo": {"lstm_hidden_size": 8},
    "qrdqn": {"n_quantiles": 4},
    "tqc": {"n_quantiles": 4, "n_critics": 1},
}
OFF_POLICY = {"batch_size": 32, "learning_starts": 32, "train_freq": 1, "buffer_size": 4000}


def trained(
    name: str, pays: list[float], lasts: list[float], cut_after: int, gamma: float, decisions: int,
    callback: Any = None, toy: type[Toy] = Toy, **changes: Any,
) -> Learner:  # fmt: skip
    """The algorithm after so many decisions of eight toys side by side."""
    torch.set_num_threads(1)
    algorithm = ALGORITHMS[name]
    env = DummyVecEnv([lambda: toy(algorithm.acts_on, pays, lasts, cut_after)] * 8)
    settings: dict[str, Any] = {
        "learning_rate": 1e-2,
        "gamma": gamma,
        "seed": 0,
        "device": "cpu",
        "policy_kwargs": {"net_arch": [16]} | NETWORKS.get(name, {}),
        **(OFF_POLICY if algorithm.is_off_policy else {}),
        **SETTINGS[name],
        **changes,
    }
    model = algorithm.make(algorithm.make.POLICY, env, **settings, **algorithm.make.FIXED)
    model.learn(decisions, callback=callback or TimedSteps(SCALE))
    return model


# Decisions that each toy takes, and after which the second is cut: an LSTM's critic meets the step
# behind a cut in no rollout, so what it says there is only right where its state has settled.
TO_ACT = {
    "ppo": 1280, "maskable-ppo": 1280, "recurrent-ppo": 1280, "a2c": 1536,
    "dqn": 960, "qrdqn": 960, "sac": 1280, "tqc": 1280,
}  # fmt: skip
TO_VALUE = {
    "ppo": 1280, "maskable-ppo": 1280, "recurrent-ppo": 1536, "a2c": 1536,
    "dqn": 1600, "qrdqn": 1600, "sac": 1920, "tqc": 2240,
}  # fmt: skip
CUT_AFTER = {"recurrent-ppo": 16}


def choosing(name: str, callback: Any = None) -> Learner:
    """Trained to choose 2 in 10 s or 1 in 1 s; a constant discount a step would take the first."""
    return trained(name, [2.0, 1.0], [10.0, 1.0], 100, 0.9, TO_ACT[name], callback)


def valuing(name: str) -> tuple[Learner, float]:
    """Trained where traces are cut, and what its state is worth: 3.01.

    A constant discount at the cuts learns far more.
    """
    gamma, lasts_s = 0.98, 20.0
    changes = {"learning_rate": 5e-3} if ALGORITHMS[name].is_off_policy else {"gae_lambda": 1.0}
    model = trained(
        name, [1.0, 1.0], [lasts_s, lasts_s], CUT_AFTER.get(name, 4), gamma, TO_VALUE[name],
        **changes,  # type: ignore[arg-type]
    )  # fmt: skip
    return model, SCALE / (1.0 - gamma**lasts_s)


def chance_of_second(model: Any) -> float:
    """How likely the second action is: where a policy is stochastic, else whether it is taken."""
    if not hasattr(model, "rollout_buffer"):
        action, _ = model.predict(NOTHING, deterministic=True)
        return float(action.reshape(-1)[0] > 0)
    rows = torch.from_numpy(NOTHING)
    if hasattr(model.policy, "lstm_actor"):
        distribution, _ = model.policy.get_distribution(rows, *beginning(model))
    else:
        distribution = model.policy.get_distribution(rows)
    return distribution.log_prob(torch.tensor([[1]])).exp().item()


def value(model: Any) -> float:
    """What the state is worth, by the critic or the best action.

    Where a critic remembers, the mean over a rollout: its state tells it how old the episode is.
    """
    rows = torch.from_numpy(NOTHING)
    if hasattr(model.policy, "lstm_actor"):
        return float(model.rollout_buffer.values.mean())
    with torch.no_grad():
        if hasattr(model, "rollout_buffer"):
            return float(model.policy.predict_values(rows))
        if hasattr(model, "q_net"):
            return float(model.q_net(rows).max())
        if hasattr(model, "quantile_net"):
            return float(model.quantile_net(rows).mean(1).max())
        action, _ = model.predict(NOTHING, deterministic=True)
        told = model.critic(rows, torch.from_numpy(action))
        return float(torch.stack(list(told)).mean() if isinstance(told, tuple) else told.mean())


def beginning(model: Any) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The state of an LSTM that has seen nothing, and that an episode starts."""
    nothing = torch.zeros(1, 1, model.policy.lstm_actor.hidden_size)
    return (nothing, nothing), torch.ones(1)
