"""The environment that a policy learns in, made for the server and the actions that were asked for.

On replay `n_envs` engines are served side by side wherever a fleet can; what it serves, and the
faces that trainers see, are `envs` and `train.watched_fleet`'s, `watched_singles`' and `window`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium

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

if TYPE_CHECKING:
    from engine.server import Server

Environment = Watched | WatchedFleet | WatchedSingles


def environment(
    server: Server, draw: Draw, config: TrainConfig, arguments: Arguments
) -> Environment:
    """The serving environment of `server`'s kind, watched: on replay `n_envs` of them at once.

    Replay with memory pressure or an overload policy is served one replica at a time, as live is;
    a policy that sets prices steers one engine after the other.
    """
    table = action_table(config)
    codec = arguments.codec(table, DEFAULT_CLASSES)
    decide_every, reward = config.learning.decide_every, config.reward.goodput()
    observation = config.learning.observation
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
        fleet = ServeFleet(
            episodes, arguments.n_envs, table, reward, decide_every, observation=observation
        )
        return WatchedFleet(fleet, codec=codec)
    made = gymnasium.make(
        envs.SERVE_ID if isinstance(server, ReplayServer) else envs.LIVE_ID,
        server=lambda: server,
        requests=draw,
        actions=table,
        reward=reward,
        decide_every=decide_every,
        observation=observation,
    )
    return Watched(made, codec=codec)


def action_table(config: TrainConfig) -> Actions:
    """What is chosen from, for the default classes."""
    return TABLES[config.learning.kind](DEFAULT_CLASSES.names)


def replicas(env: Environment) -> int:
    """Engines that are stepped at once."""
    return 1 if isinstance(env, Watched) else env.num_envs
