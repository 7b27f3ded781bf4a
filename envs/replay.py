"""`DraftGym/Serve-v0`: the serving environment on replay; the same seed gives the same episode.

Puts a recording, a hardware profile and a workload together; the environment itself is
`envs.serve`. No network is loaded, and time, power and memory are modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.drawing import Draw
from engine.workload import WorkloadConfig
from envs.episodes import ReplayEpisodes
from envs.live import chosen_actions
from envs.observing import Size, observer
from envs.reward import GoodputReward
from envs.serve import ServeEnv
from policies.actions import Actions

if TYPE_CHECKING:
    from engine.loop import Engine
    from engine.replay.server import ReplayServer
    from engine.request import Request


def make_replay(
    *,
    server: ReplayServer | Callable[[], ReplayServer] | None = None,
    recording: str | Path | None = None,
    profile: str | Path | None = None,
    slots: int = 16,
    workload: str | WorkloadConfig = "shifting",
    load: float | None = None,
    held_out: bool = False,
    requests: Draw | None = None,
    classes: ClassTable = DEFAULT_CLASSES,
    actions: Actions | None = None,
    lossless: bool = True,
    observation: Size = "aggregate",
    reward: GoodputReward | None = None,
    decide_every: int = 1,
    max_decisions: int | None = None,
    seed: int | None = None,
) -> ServeEnv:
    """The environment that `gymnasium.make("DraftGym/Serve-v0", …)` returns.

    `server` (or a function that returns one, which Gymnasium never copies) is used as it is;
    otherwise `recording`, `profile` (None: those that ship with DraftGym) and `slots` say what to
    load, at the first reset. `held_out` serves the texts that are kept for evaluation, which no
    training should see. `observation` is one of `envs.observing`; of those but the aggregate the
    server says how large they are, so it is loaded at once. The rest is as of
    `envs.live.make_live`. Raises UserError.
    """
    episodes = ReplayEpisodes(
        server, recording, profile, slots, workload, load, held_out, requests, classes
    )
    table = chosen_actions(classes, actions, lossless)

    def engine_for(requests: Sequence[Request]) -> Engine:
        return episodes.server.engine(requests, classes)

    def make_engine(generator: np.random.Generator) -> Engine:
        return engine_for(episodes.draw(generator))

    sees = observer(observation, table, lambda: episodes.server.settings.limits)
    return ServeEnv(make_engine, table, reward, decide_every, max_decisions, seed, engine_for, sees)
