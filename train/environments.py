"""The environment that a policy learns in, made for the server and the actions that were asked for.

On replay `n_envs` engines are served side by side wherever a fleet can; what it serves, and the
faces that trainers see, are `envs` and `train.watched_fleet`'s, `watched_singles`' and `window`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium

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

if TYPE_CHECKING:
    from engine.server import Server

Environment = Watched | WatchedFleet | WatchedSingles


def environment(
    server: Server, draw: Draw, config: TrainConfig, arguments: Arguments
) -> Environment:
    """The serving environment of `server`'s kind, watched: on replay `n_envs` of them at once.

    Replay with memory pressure or an overload policy is served one replica at a time, as live is;
    a policy that sets prices, or observes what a fleet does not show, acts on one engine after the
    other.
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


def replicas(env: Environment) -> int:
    """Engines that are stepped at once."""
    return 1 if isinstance(env, Watched) else env.num_envs
