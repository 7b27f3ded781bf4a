"""Training by any algorithm: the loop, with all that happens beside learning.

The environment is `train.environments`', the model that training begins with `train.first_model`'s,
callbacks are `train.callbacks`' and others', each its own concern.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from stable_baselines3.common.callbacks import BaseCallback, CallbackList

import envs
from engine.drawing import Draw
from engine.errors import UserError
from engine.replay.server import ReplayServer
from policies.features import Observation, feature_table
from policies.novelty import observed_of
from train.algorithms.arguments import Arguments
from train.algorithms.base import Learner
from train.algorithms.carried import Kept
from train.best_model import BestHeldOut, BestRollout
from train.callbacks import (
    Bar,
    Checkpoints,
    Clock,
    Enough,
    Extent,
    Limit,
    Recorder,
    run_logger,
)
from train.config import TrainConfig
from train.curriculum import Curriculum
from train.curriculum_progress import CurriculumProgress
from train.environments import Trainable, environment, live_workers
from train.evaluation import LoadServer, load_server
from train.first_model import first_model, reward_scale
from train.held_out import held_out_episodes
from train.imitation import imitate
from train.interrupt import StopRequest
from train.learned_reward import learned_reward
from train.metrics_csv import write_csv
from train.monitor import EpisodeTable
from train.progress import ProgressLine
from train.run_folder import OBSERVED, RunFolder
from train.saved_model import save_model
from train.task import task_of
from train.training_state import take
from train.window import Watched
from train.workers.vector import LiveWorkers

if TYPE_CHECKING:
    from engine.server import Server

ENDLESS = 10**9  # decisions: time ends training
BEST_OF = 1024  # decisions at least by which a model is judged


@dataclass(frozen=True)
class Course:
    """A stretch of training: who learns where, until when, and where it is kept."""

    model: Learner
    env: Trainable
    server: Server
    config: TrainConfig
    run: RunFolder
    extent: Extent
    checkpoint: Path


def train_model(
    server: Server,
    draw: Draw,
    config: TrainConfig,
    arguments: Arguments,
    run: RunFolder,
    line: ProgressLine,
    stop: StopRequest,
    say: Callable[[str], None] = lambda _: None,
    curriculum: Curriculum | None = None,
    load_server: LoadServer = load_server,
) -> Learner:
    """Train until it is enough or a stop is asked for; saved at the end either way.

    `line` moves from 0 to 1, `say` is told where something else ends training, and `curriculum`
    (one that `draw` draws from) how far it is. Several live engines load servers of their own by
    `load_server`. Raises UserError, the model as it stands saved, where a reward or an observation
    is no number, and where a live engine dies again and again.
    """
    learning, on_replay = config.learning, isinstance(server, ReplayServer)
    task = task_of(learning.kind, config.preset, learning.observation)
    env: Trainable
    if isinstance(server, ReplayServer) or arguments.n_envs == 1:
        env = environment(server, draw, config, arguments)
    else:
        env = live_workers(server, config, arguments, run.path, load_server, curriculum)
    if not isinstance(env, Watched):
        env.shared_by = config.episodes.shared_arrivals
    model = first_model(env, config, arguments, run, on_replay)
    if learning.imitate is not None and not run.checkpoint.is_file():
        imitate(model, server, draw, config, run, say, reward_scale(server.unloaded_tpot_s, config))
        if not isinstance(env, Watched) and env.shared_by > 1:
            env.seed(config.seed)  # some have had more episodes than their neighbours
    if curriculum is not None:
        curriculum.share = model.share_done
    extent = Extent(Clock(model.trained_s), 60.0 * learning.minutes, learning.decisions)
    if extent.share(model.num_timesteps) >= 1.0:
        return model

    def save_best() -> None:
        save_model(model, run.best, experience=False)

    def note(seen: Observation) -> None:
        if task.observation == "aggregate":  # novelty is told from views, which hold nothing else
            features = feature_table(env.codec.table.class_names)
            run.write_json(OBSERVED, observed_of(seen, features))

    best: BaseCallback
    if on_replay and learning.held_out_every:
        held_out = held_out_episodes(server, config, arguments)
        best = BestHeldOut(
            held_out, learning.held_out_every, learning.patience, save_best, stop, say, note
        )
    else:
        random = getattr(model, "learning_starts", 0)
        least = BEST_OF if arguments.algorithm.is_off_policy else 1
        best = BestRollout(save_best, least, random, task.rewards_rate)
    course = Course(model, env, server, config, run, extent, run.checkpoint)
    follow(course, line, stop, curriculum, best)
    return model


def follow(
    course: Course,
    line: ProgressLine,
    stop: StopRequest,
    curriculum: Curriculum | None = None,
    best: BaseCallback | None = None,
) -> None:
    """Learn to the end of the course or until a stop, write what happens, save; then close `env`.

    Raises UserError as `train_model`.
    """
    model, env, server, run = course.model, course.env, course.server, course.run
    config, extent, clock = course.config, course.extent, course.extent.clock
    on_replay = isinstance(server, ReplayServer)
    saved_at = [model.num_timesteps]

    def save() -> None:
        model.trained_s = clock.elapsed_s
        for callback in callbacks:
            if isinstance(callback, Kept):
                callback.keep()
        state = None
        if on_replay and not isinstance(env, LiveWorkers):
            state = take(model, env)
        save_model(model, course.checkpoint, state=state)
        saved_at.append(model.num_timesteps)

    callbacks: list[BaseCallback] = [
        EpisodeTable(run.monitor, envs.SERVE_ID if on_replay else envs.LIVE_ID, clock, on_replay),
        *learned_reward(server, config, reward_scale(server.unloaded_tpot_s, config)),
        *([] if curriculum is None else [CurriculumProgress(curriculum)]),
        Bar(line, env, extent),
        Recorder(env, clock),
        *([] if best is None else [best]),
        Checkpoints(save, config.learning.save_every_s, between_rollouts=on_replay),
        Limit(extent, stop, between_rollouts=on_replay),
    ]
    model.set_logger(run_logger(run.path, run.metrics, model.num_timesteps))
    threads = torch.get_num_threads()
    if not isinstance(env, Watched):  # nothing but so small a network computes: threads only wait
        torch.set_num_threads(1)
    try:
        _learn(model, callbacks, extent.last)
        save()
    except UserError as error:
        save_model(model, run.failed)
        raise UserError(
            f"{error}; the model as it stood after {model.num_timesteps:,} decisions is in "
            f"{run.failed}, and --resume {run.path} goes on from {saved_at[-1]:,}"
        ) from error
    finally:
        torch.set_num_threads(threads)
        model.logger.close()
        env.close()
    write_csv(run.metrics, run.metrics_csv)


def _learn(model: Learner, callbacks: list[BaseCallback], decisions: int | None) -> None:
    """Learn until there are so many decisions, or a callback has had enough."""
    most = ENDLESS if decisions is None else decisions - model.num_timesteps
    together = CallbackList(callbacks)
    try:
        model.learn(most, callback=together, reset_num_timesteps=False)
    except Enough:
        together.on_training_end()
