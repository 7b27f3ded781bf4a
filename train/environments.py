"""The environment that a policy learns in, made for the server and the actions that were asked for.

On replay `n_envs` engines are served side by side wherever a fleet can, live ones in processes of
their own; what is served, and the faces that trainers see, are `envs` and `train.watched_fleet`'s,
`watched_singles`', `window`'s and `workers`'.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import gymnasium
import torch

import envs
from engine.classes import DEFAULT_CLASSES
from engine.drawing import Draw
from engine.replay.fleet.filling import refusal
from engine.replay.server import ReplayServer
from envs.episodes import ReplayEpisodes
from envs.fleet import ServeFleet
from envs.replay import make_replay
from policies.actions import Actions, ActionTable
from train.algorithms.arguments import Arguments
from train.config import TrainConfig
from train.environment_version import TABLES
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
    checkpoint. A policy that sets prices steers one engine after the other.
    """
    table = action_table(config)
    codec = arguments.codec(table, DEFAULT_CLASSES)
    decide_every, reward = config.learning.decide_every, config.reward.goodput()
    if isinstance(server, ReplayServer) and not isinstance(table, ActionTable):
        singles = [
            make_replay(
                server=server, requests=draw, actions=table, reward=reward,
                decide_every=decide_every,
            )
            for _ in range(arguments.n_envs)
        ]  # fmt: skip
        return WatchedSingles(singles, codec=codec)
    if isinstance(server, ReplayServer) and not refusal(server):
        assert isinstance(table, ActionTable)
        episodes = ReplayEpisodes(server, requests=draw)
        fleet = ServeFleet(episodes, arguments.n_envs, table, reward, decide_every)
        return WatchedFleet(fleet, codec=codec)
    made = gymnasium.make(
        envs.SERVE_ID if isinstance(server, ReplayServer) else envs.LIVE_ID,
        server=lambda: server,
        requests=draw,
        actions=table,
        reward=reward,
        decide_every=decide_every,
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
    recipe = LiveRecipe(config, action_table(config), load_server, threads, server.identity.dtype)
    return LiveWorkers(
        [recipe] * arguments.n_envs,
        arguments.codec(action_table(config), DEFAULT_CLASSES),
        run / WORKERS,
        server.settings.limits,
        lambda: 0.0 if curriculum is None else curriculum.share,
    )


def action_table(config: TrainConfig) -> Actions:
    """What is chosen from, for the default classes."""
    return TABLES[config.learning.kind](DEFAULT_CLASSES.names)


def replicas(env: Trainable) -> int:
    """Engines that are stepped at once."""
    return 1 if isinstance(env, Watched) else env.num_envs
