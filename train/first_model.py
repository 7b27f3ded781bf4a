"""The model that training begins with: a new one, or the run's as it was saved.

Which algorithms there are is `train.algorithms.registry`'s; how a model is kept,
`train.saved_model`'s, and all else that a run goes on from, `train.training_state`'s.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from engine.errors import UserError
from train.algorithms.arguments import Arguments
from train.algorithms.base import Learner
from train.algorithms.request_encoder import ENCODING
from train.algorithms.timing import TimedDictBuffer
from train.config import TrainConfig
from train.environments import Trainable, replicas
from train.run_folder import RunFolder
from train.saved_model import load_model, load_state
from train.task import task_of
from train.training_state import put_back
from train.workers.vector import LiveWorkers

EARNED = 0.05


def first_model(
    env: Trainable, config: TrainConfig, arguments: Arguments, run: RunFolder, on_replay: bool
) -> Learner:
    """A new model, or the run's as it was saved. Raises UserError where it cannot go on.

    On replay the environment and every generator are put back to that moment, too.
    """
    if not run.checkpoint.is_file():
        return new_model(env, config, arguments)
    gamma = per_second(config.learning.half_life_s)
    model = load_model(run.checkpoint, arguments.algorithm, env, arguments, gamma, on_replay)
    if not on_replay or isinstance(env, LiveWorkers):
        other_arrivals(model, config)
        return model
    try:
        put_back(model, env, load_state(run.checkpoint))
    except UserError as error:
        raise UserError(f"--resume {run.path}: {error}") from error
    return model


def new_model(env: Trainable, config: TrainConfig, arguments: Arguments) -> Learner:
    """An untrained model, which starts with small trees and batches where the task says so.

    Observations are scaled by the features' definition, not here.
    """
    kind: Any = arguments.algorithm.make  # each has arguments of its own
    options, network = arguments.of(replicas(env)) | kind.FIXED, arguments.network()
    if isinstance(env.observation_space, spaces.Dict):
        options |= {"rollout_buffer_class": TimedDictBuffer}
        network |= ENCODING
    model: Learner = kind(
        kind.POLICY,
        env,
        **options,
        gamma=per_second(config.learning.half_life_s),
        policy_kwargs=network,
        seed=config.seed,
        device="cpu",
    )
    model.codec = env.codec
    if task_of(config.learning.kind, config.preset).starts_small:
        model.start_small()
    return model


def per_second(half_life_s: float) -> float:
    """The discount of one second after which, `half_life_s` long, a reward counts for half."""
    return float(0.5 ** (1.0 / half_life_s)) if half_life_s > 0 else 0.0


def reward_scale(unloaded_tpot_s: float, config: TrainConfig) -> float:
    """A fixed factor that brings returns near 1, where the critic starts.

    A rate is near 1 by itself, and as many are in a return as decisions in the half-life.

    At most one valid token a slot and unloaded token time comes in (without speculation), and
    half_life / ln 2 seconds of it are in a return. Most slots wait or are empty while objectives
    can be met, so what does come in is about EARNED of that.
    """
    learning = config.learning
    half_life_s = learning.half_life_s
    if task_of(learning.kind, config.preset).rewards_rate:
        return 1.0 - per_second(half_life_s) ** (unloaded_tpot_s * learning.decide_every)
    return unloaded_tpot_s * math.log(2.0) / half_life_s / EARNED


def other_arrivals(model: Learner, config: TrainConfig) -> None:
    """Seed what goes on on a live engine, or it would see again what it saw at the start."""
    words = np.random.SeedSequence((config.seed, model.num_timesteps)).generate_state(1)
    model.set_random_seed(int(words[0]))
