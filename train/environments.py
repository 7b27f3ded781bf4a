"""The environment that a policy learns in, made for the server and the actions that were asked for.

On replay `n_envs` engines are served side by side wherever a fleet can, live ones in processes of
their own; what is served, and the faces that trainers see, are `envs` and `train.watched_fleet`'s,
`watched_singles`', `window`'s and `workers`'.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium
import torch

import envs
from engine.drawing import Draw
from engine.replay.fleet.filling import refusal
from engine.replay.server import ReplayServer
from envs.episodes import ReplayEpisodes
from envs.fleet import ServeFleet
from envs.replay import make_replay
from policies.actions import ActionTable
from train.algorithms.arguments import Arguments
from train.config import TrainConfig
from train.task import task_of
from train.watched_fleet import WatchedFleet
from train.watched_singles import WatchedSingles
from train.window import Watched
from train.workers.engine import LiveRecipe
from train.workers.vector import LiveWorkers

if TYPE_CHECKING:
    from engine.server import Server
    from engine.serving import LiveServer
    from train.curriculum import Curriculum
    from train.evaluation import LoadServer

Environment: TypeAlias = Watched | WatchedFleet | WatchedSingles
"""What is stepped in the trainer's own process."""
Trainable: TypeAlias = Environment | LiveWorkers
WORKERS = "workers"
"""Folder of a run that keeps what is left of workers that died."""


def environment(
    server: Server, draw: Draw, config: TrainConfig, arguments: Arguments
) -> Environment:
    """The serving environment of `server`'s kind, watched: on replay `n_envs` of them at once.

    Replay with memory pressure or an overload policy is served one replica at a time, and so is a
    live server here: a worker for a single one would be a second copy of the networks beside the
    trainer's, which compares on it, and would save no more than what was learned since the last
    checkpoint. A policy that sets prices, or observes what a fleet does not show, acts on one
    engine after the other.
    """
    task = task_of(config.learning.kind, config.preset, config.learning.observation)
    table, reward = task.actions, task.reward(config.reward.goodput())
    codec, decide_every = arguments.codec(table, task.classes), config.learning.decide_every
    options: dict[str, Any] = {
        "requests": draw,
        "classes": task.classes,
        "actions": table,
        "observation": task.observation,
        "reward": reward,
        "decide_every": decide_every,
    }
    in_fleet = isinstance(table, ActionTable) and task.observation != "learning-to-draft"
    if isinstance(server, ReplayServer) and not in_fleet:
        singles = [make_replay(server=server, **options) for _ in range(arguments.n_envs)]
        return WatchedSingles(singles, codec=codec)
    if isinstance(server, ReplayServer) and not refusal(server):
        assert isinstance(table, ActionTable)
        episodes = ReplayEpisodes(server, requests=draw)
        fleet = ServeFleet(
            episodes, arguments.n_envs, table, reward, decide_every, observation=task.observation
        )
        return WatchedFleet(fleet, codec=codec)
    made = gymnasium.make(
        envs.SERVE_ID if isinstance(server, ReplayServer) else envs.LIVE_ID,
        server=lambda: server,
        **options,
    )
    return Watched(made, codec=codec)


def live_workers(
    server: LiveServer,
    config: TrainConfig,
    arguments: Arguments,
    run: Path,
    load_server: LoadServer,
    curriculum: Curriculum | None = None,
) -> LiveWorkers:
    """`n_envs` live engines that `load_server` loads, each in a process of its own.

    They share out the threads of `server`, which stays with the trainer and compares in the end.
    What is left of those that die is kept in the run's folder `run`.
    """
    threads = max(torch.get_num_threads() // arguments.n_envs, 1)
    task = task_of(config.learning.kind, config.preset)
    recipe = LiveRecipe(config, task.actions, load_server, threads, server.identity.dtype)
    return LiveWorkers(
        [recipe] * arguments.n_envs,
        arguments.codec(task.actions, task.classes),
        run / WORKERS,
        server.settings.limits,
        lambda: 0.0 if curriculum is None else curriculum.share,
    )


def replicas(env: Trainable) -> int:
    """Engines that are stepped at once."""
    return 1 if isinstance(env, Watched) else env.num_envs
