"""PPO on a live or replayed engine: environment, model, how it is saved and taken up again.

What is discounted how is `train.timed_ppo`; what happens beside learning, `train.callbacks`.
"""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO

import envs
from engine.atomic_write import write_atomic
from engine.classes import DEFAULT_CLASSES
from engine.drawing import Draw
from engine.errors import UserError
from engine.replay.fleet.filling import refusal
from engine.replay.server import ReplayServer
from envs.episodes import ReplayEpisodes
from envs.fleet import ServeFleet
from policies.actions import ActionTable
from train.callbacks import Bar, Clock, Limit, Recorder, Saver, run_logger
from train.config import Learning, TrainConfig
from train.interrupt import StopRequest
from train.progress import ProgressLine
from train.run_folder import RunFolder
from train.tier_policy import TierPolicy
from train.timed_ppo import TimedRolloutBuffer, TimedSteps
from train.watched_fleet import WatchedFleet
from train.window import Watched

if TYPE_CHECKING:
    from engine.server import Server

HIDDEN = (64, 64)
GAE_LAMBDA = 0.95
CAUTION = 0.7  # the next larger tier is half as likely at the start
REPLICAS = 32  # engines on replay that are stepped at once
ENDLESS = 10**9  # steps: time ends training


class TimedPPO(PPO):
    """PPO with what a run must remember beside the weights; saved and loaded with the model."""

    trained_s: float = 0.0
    best_reward: float = -math.inf
    updates: int = 0
    """Rollouts that were learned from."""

    def train(self) -> None:
        """Learn from the rollout."""
        super().train()
        self.updates += 1


def environment(server: Server, draw: Draw, decide_every: int) -> Watched | WatchedFleet:
    """The serving environment of `server`'s kind, watched: on replay REPLICAS of them at once.

    Replay with memory pressure or an overload policy is served one replica at a time, as live is.
    """
    if isinstance(server, ReplayServer) and not refusal(server):
        table = ActionTable(DEFAULT_CLASSES.names)
        episodes = ReplayEpisodes(server, requests=draw)
        return WatchedFleet(ServeFleet(episodes, REPLICAS, table, decide_every=decide_every))
    made = gymnasium.make(
        envs.SERVE_ID if isinstance(server, ReplayServer) else envs.LIVE_ID,
        server=lambda: server,
        requests=draw,
        decide_every=decide_every,
    )
    return Watched(made)


def new_model(env: Watched | WatchedFleet, config: TrainConfig) -> TimedPPO:
    """An untrained model that starts with small trees.

    One that starts with all of them alike builds a queue in its first minute that it cannot get
    rid of, and never sees a request served in time. Observations are scaled by the features'
    definition, not here.
    """
    model = TimedPPO(
        TierPolicy,
        env,
        **hyperparameters(config.learning, replicas(env)),
        gae_lambda=GAE_LAMBDA,
        policy_kwargs={"net_arch": list(HIDDEN)},
        rollout_buffer_class=TimedRolloutBuffer,
        seed=config.seed,
        device="cpu",
    )
    prefer_small(model.policy.action_net, cast(spaces.MultiDiscrete, env.action_space))
    return model


def prefer_small(action_net: torch.nn.Module, actions: spaces.MultiDiscrete) -> None:
    """Bias the logits so that of two neighbouring tiers the smaller is likelier, e^CAUTION to 1."""
    # Tiers rise in every dimension (`policies.actions`).
    tiers = np.concatenate([np.arange(count) for count in actions.nvec])
    with torch.no_grad():
        cast(torch.nn.Linear, action_net).bias.copy_(torch.from_numpy(-CAUTION * tiers))


def replicas(env: Watched | WatchedFleet | None) -> int:
    """Engines that are stepped at once."""
    return env.num_envs if isinstance(env, WatchedFleet) else 1


def hyperparameters(learning: Learning, of: int = 1) -> dict[str, Any]:
    """PPO's arguments that the options set, also those of a resumed run; `of` so many replicas.

    Rollout and batch are of each replica, so an update takes as many gradient steps as of one.
    """
    return {
        "n_steps": learning.rollout,
        "batch_size": learning.batch * of,
        "n_epochs": learning.epochs,
        "learning_rate": learning.learning_rate,
        "gamma": per_second(learning.half_life_s),
        "ent_coef": learning.entropy,
    }


def per_second(half_life_s: float) -> float:
    """The discount of one second after which, `half_life_s` long, a reward counts for half."""
    return float(0.5 ** (1.0 / half_life_s))


def reward_scale(unloaded_tpot_s: float, half_life_s: float) -> float:
    """A fixed factor that brings returns near 1, where the critic starts.

    At most one valid token a slot and unloaded token time comes in (without speculation), and
    half_life / ln 2 seconds of it are in a return.
    """
    return unloaded_tpot_s * math.log(2.0) / half_life_s


def save_model(model: TimedPPO, path: Path) -> None:
    """Write the model's zip whole or not at all."""
    buffer = io.BytesIO()
    model.save(buffer)
    write_atomic(path, buffer.getvalue())


def load_model(
    path: Path, env: Watched | WatchedFleet | None = None, learning: Learning | None = None
) -> TimedPPO:
    """Read a model that this program saved (the file may run code). Raises UserError.

    `learning` replaces the hyperparameters that it was saved with.
    """
    if not path.is_file():
        raise UserError(f"{path}: nothing was saved there yet; train for longer, or anew")
    try:
        changed = {} if learning is None else hyperparameters(learning, replicas(env))
        return TimedPPO.load(path, env=env, device="cpu", **changed)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        raise UserError(f"{path} is damaged ({error}); train anew") from error


def train_model(
    server: Server,
    draw: Draw,
    config: TrainConfig,
    run: RunFolder,
    line: ProgressLine,
    stop: StopRequest,
) -> TimedPPO:
    """Train until the time is up or a stop is asked for; saved at the end either way."""
    learning = config.learning
    env = environment(server, draw, learning.decide_every)
    if run.checkpoint.is_file():
        model = load_model(run.checkpoint, env, learning)
        # Other arrivals than at the start, or a resumed run would see the same ones again.
        model.set_random_seed(_seed(config.seed, model.num_timesteps))
    else:
        model = new_model(env, config)
    total_s = 60.0 * learning.minutes
    clock = Clock(model.trained_s)
    if clock.elapsed_s >= total_s:
        return model

    def save() -> None:
        model.trained_s = clock.elapsed_s
        model.best_reward = saver.best_reward
        save_model(model, run.checkpoint)

    model.set_logger(run_logger(run.path, run.metrics))
    saver = Saver(save, lambda: save_model(model, run.best), model.best_reward)
    scale = reward_scale(server.unloaded_tpot_s, learning.half_life_s)
    callbacks = [
        TimedSteps(scale),
        Bar(line, env, clock, total_s),
        Recorder(env, clock),
        saver,
        Limit(clock, total_s, stop),
    ]
    threads = torch.get_num_threads()
    if isinstance(env, WatchedFleet):  # nothing but so small a network computes: threads only wait
        torch.set_num_threads(1)
    try:
        model.learn(ENDLESS, callback=callbacks, reset_num_timesteps=False)
        save()
    finally:
        torch.set_num_threads(threads)
        model.logger.close()
        env.close()
    return model


def _seed(seed: int, steps: int) -> int:
    return int(np.random.SeedSequence((seed, steps)).generate_state(1)[0])
