"""Training by any algorithm: the environment that it learns in, a new model, and the loop.

Which algorithms there are is `train.algorithms.registry`'s; what happens beside learning,
`train.callbacks`'; how a model is kept, `train.saved_model`'s.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import torch

import envs
from engine.classes import DEFAULT_CLASSES
from engine.drawing import Draw
from engine.replay.fleet.filling import refusal
from engine.replay.server import ReplayServer
from envs.episodes import ReplayEpisodes
from envs.fleet import ServeFleet
from policies.actions import ActionTable
from train.algorithms.arguments import Arguments
from train.algorithms.base import Learner
from train.algorithms.timing import TimedSteps
from train.callbacks import Bar, Clock, Extent, Limit, Recorder, Saver, run_logger
from train.config import TrainConfig
from train.interrupt import StopRequest
from train.progress import ProgressLine
from train.run_folder import RunFolder
from train.saved_model import load_model, save_model
from train.watched_fleet import WatchedFleet
from train.window import Watched

if TYPE_CHECKING:
    from engine.server import Server

Environment = Watched | WatchedFleet
ENDLESS = 10**9  # decisions: time ends training
BEST_OF = 1024  # decisions at least by which a model is judged


def environment(
    server: Server, draw: Draw, config: TrainConfig, arguments: Arguments
) -> Environment:
    """The serving environment of `server`'s kind, watched: on replay `n_envs` of them at once.

    Replay with memory pressure or an overload policy is served one replica at a time, as live is.
    """
    table = ActionTable(DEFAULT_CLASSES.names)
    codec = arguments.codec(table, DEFAULT_CLASSES)
    decide_every = config.learning.decide_every
    if isinstance(server, ReplayServer) and not refusal(server):
        episodes = ReplayEpisodes(server, requests=draw)
        fleet = ServeFleet(episodes, arguments.n_envs, table, decide_every=decide_every)
        return WatchedFleet(fleet, codec=codec)
    made = gymnasium.make(
        envs.SERVE_ID if isinstance(server, ReplayServer) else envs.LIVE_ID,
        server=lambda: server,
        requests=draw,
        actions=table,
        decide_every=decide_every,
    )
    return Watched(made, codec=codec)


def new_model(env: Environment, config: TrainConfig, arguments: Arguments) -> Learner:
    """An untrained model that starts with small trees.

    Observations are scaled by the features' definition, not here.
    """
    kind: Any = arguments.algorithm.make  # each has arguments of its own
    options = arguments.of(replicas(env)) | kind.FIXED
    model: Learner = kind(
        kind.POLICY,
        env,
        **options,
        gamma=per_second(config.learning.half_life_s),
        policy_kwargs=arguments.network(),
        seed=config.seed,
        device="cpu",
    )
    model.codec = env.codec
    model.start_small()
    return model


def replicas(env: Environment) -> int:
    """Engines that are stepped at once."""
    return env.num_envs if isinstance(env, WatchedFleet) else 1


def per_second(half_life_s: float) -> float:
    """The discount of one second after which, `half_life_s` long, a reward counts for half."""
    return float(0.5 ** (1.0 / half_life_s))


def reward_scale(unloaded_tpot_s: float, half_life_s: float) -> float:
    """A fixed factor that brings returns near 1, where the critic starts.

    At most one valid token a slot and unloaded token time comes in (without speculation), and
    half_life / ln 2 seconds of it are in a return.
    """
    return unloaded_tpot_s * math.log(2.0) / half_life_s


def train_model(
    server: Server,
    draw: Draw,
    config: TrainConfig,
    arguments: Arguments,
    run: RunFolder,
    line: ProgressLine,
    stop: StopRequest,
) -> Learner:
    """Train until it is enough or a stop is asked for; saved at the end either way.

    `line` moves from 0 to 1.
    """
    learning = config.learning
    env = environment(server, draw, config, arguments)
    if run.checkpoint.is_file():
        gamma = per_second(learning.half_life_s)
        model = load_model(run.checkpoint, arguments.algorithm, env, arguments, gamma)
        # Other arrivals than at the start, or a resumed run would see the same ones again.
        model.set_random_seed(_seed(config.seed, model.num_timesteps))
    else:
        model = new_model(env, config, arguments)
    clock = Clock(model.trained_s)
    extent = Extent(clock, 60.0 * learning.minutes, learning.decisions)
    if extent.share(model.num_timesteps) >= 1.0:
        return model

    def save() -> None:
        model.trained_s = clock.elapsed_s
        model.best_reward = saver.best_reward
        save_model(model, run.checkpoint)

    def save_best() -> None:
        save_model(model, run.best, experience=False)

    model.set_logger(run_logger(run.path, run.metrics))
    random = getattr(model, "learning_starts", 0)
    least = BEST_OF if arguments.algorithm.is_off_policy else 1
    saver = Saver(save, save_best, model.best_reward, least, random)
    callbacks = [
        TimedSteps(reward_scale(server.unloaded_tpot_s, learning.half_life_s)),
        Bar(line, env, extent),
        Recorder(env, clock),
        saver,
        Limit(extent, stop),
    ]
    most = ENDLESS if learning.decisions is None else learning.decisions - model.num_timesteps
    threads = torch.get_num_threads()
    if isinstance(env, WatchedFleet):  # nothing but so small a network computes: threads only wait
        torch.set_num_threads(1)
    try:
        model.learn(most, callback=callbacks, reset_num_timesteps=False)
        save()
    finally:
        torch.set_num_threads(threads)
        model.logger.close()
        env.close()
    return model


def _seed(seed: int, steps: int) -> int:
    return int(np.random.SeedSequence((seed, steps)).generate_state(1)[0])
