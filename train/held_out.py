"""How good the greedy policy is on arrivals and texts that training never sees, on replay.

The batched replay serves all episodes side by side, in the training environment's own terms, so
judging a policy costs what a few of its rollouts cost. That an exported controller acts alike is
`export.py --check`'s to show; the comparison at the end of a run is served by the exported one, on
other arrivals, since the best of many judgements looks better than it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from envs.observing import of_engine
from envs.reward import GoodputReward
from eval.compare import ARRIVING, over
from policies.action_codec import TierCodec
from policies.features import Observation
from train.environments import Environment, environment
from train.evaluation import drawing, served_workload
from train.sb3_vec_env import MASKS
from train.task import task_of

if TYPE_CHECKING:
    from engine.server import Server
    from train.algorithms.arguments import Arguments
    from train.algorithms.base import Learner
    from train.config import TrainConfig

EPISODES, SECONDS = 16, 60.0
"""How many, and how long each lasts on the engine's clock, as in a comparison."""
FIRST_SEED = 700_000
"""Of the environments; one word of entropy, so no episode of a comparison is drawn by it."""
VIOLATION_TOKENS = GoodputReward().violation_tokens
"""Valid tokens that a violation costs: the default reward's price, whatever training pays, so that
scores of different runs compare."""


@dataclass(frozen=True)
class HeldOutFigures:
    """What the episodes came to together; rates per second from first arrival to last finish."""

    score: float
    """Valid tokens less VIOLATION_TOKENS for each violation, a second: the default reward's goal
    in one number. More is better."""
    attainment: float
    goodput_tps: float
    valid_tps: float
    violations: float
    """Requests an episode that missed an objective."""
    reward: float
    """What the run itself pays, a second: by this its best model is chosen."""

    def tags(self) -> dict[str, float]:
        """By name, for TensorBoard and the table; what has nothing to count is left out."""
        return {f"eval/{k}": v for k, v in asdict(self).items() if np.isfinite(v)}


class HeldOut:
    """The held-out episodes, the same ones at every call."""

    def __init__(self, env: Environment, episodes: int) -> None:
        """`env` draws held-out requests and nobody else steps it; `episodes` are served in all."""
        self._env: VecEnv = env if isinstance(env, VecEnv) else DummyVecEnv([lambda: env])
        self._masked = isinstance(env.codec, TierCodec) and env.codec.masked
        self._each = -(-episodes // self._env.num_envs)
        self.seen: Observation | None = None
        """[T, F] features by class and of the engine that the latest call saw."""

    def serve(self, model: Learner) -> HeldOutFigures:
        """Serve every episode to its end, acting greedily. Draws from no generator of training."""
        env = self._env
        env.seed(FIRST_SEED)
        observed: Any = env.reset()
        left = np.full(env.num_envs, self._each)
        memory, begins = None, np.ones(env.num_envs, np.bool_)
        valid = missed = good = span_s = paid = 0.0
        attainment: list[float] = []
        seen: list[Observation] = []
        while left.any():
            seen.append(of_engine(observed)[left > 0])
            masks = {MASKS: np.stack(env.env_method(MASKS))} if self._masked else {}
            actions, memory = model.predict(
                observed, state=memory, episode_start=begins, deterministic=True, **masks
            )
            observed, rewards, begins, infos = env.step(actions)
            for index in np.flatnonzero(left).tolist():
                info = infos[index]
                valid += info["valid_tokens"]
                missed += info["missed"]
                paid += float(rewards[index])
                if begins[index]:
                    ended, left[index] = info["serving"], left[index] - 1
                    attainment.append(ended["attainment"])
                    if ended["span_s"] > 0:
                        span_s += ended["span_s"]
                        good += ended["goodput_tps"] * ended["span_s"]
        self.seen = np.concatenate(seen) if seen else None
        known = [share for share in attainment if np.isfinite(share)]
        return HeldOutFigures(
            score=_rate(valid - VIOLATION_TOKENS * missed, span_s),
            attainment=float(np.mean(known)) if known else float("nan"),
            goodput_tps=_rate(good, span_s if known else 0.0),
            valid_tps=_rate(valid, span_s),
            violations=missed / len(attainment),
            reward=_rate(paid, span_s),
        )


def held_out_episodes(server: Server, config: TrainConfig, arguments: Arguments) -> HeldOut:
    """What best models are chosen by: the workload of the run, on texts that it never trains on."""
    serving, task = config.serving, task_of(config.learning.kind, config.preset)
    work = over(served_workload(serving), ARRIVING * SECONDS)
    draw = drawing(server, serving, work, held_out=True, classes=task.classes)
    side_by_side = replace(arguments, values={**arguments.values, "n_envs": EPISODES})
    return HeldOut(environment(server, draw, config, side_by_side), EPISODES)


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else float("nan")
