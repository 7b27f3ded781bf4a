"""`DraftGym/Serve-v0`: the serving environment on replay; the same seed gives the same episode.

Puts a recording, a hardware profile and a workload together; the environment itself is
`envs.serve`. No network is loaded, and time, power and memory are modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.drawing import Draw
from engine.workload import WorkloadConfig
from envs.live import chosen_actions, chosen_workload
from envs.reward import GoodputReward
from envs.serve import ServeEnv
from policies.actions import ActionTable

if TYPE_CHECKING:
    from engine.loop import Engine
    from engine.replay.server import ReplayServer


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
    actions: ActionTable | None = None,
    lossless: bool = True,
    reward: GoodputReward | None = None,
    decide_every: int = 1,
    max_decisions: int | None = None,
    seed: int | None = None,
) -> ServeEnv:
    """The environment that `gymnasium.make("DraftGym/Serve-v0", …)` returns.

    `server` (or a function that returns one, which Gymnasium never copies) is used as it is;
    otherwise `recording`, `profile` (None: those that ship with DraftGym) and `slots` say what to
    load, at the first reset. `held_out` serves the texts that are kept for evaluation, which no
    training should see. The rest is as of `envs.live.make_live`. Raises UserError.
    """
    table = chosen_actions(classes, actions, lossless)
    config = chosen_workload(workload, load) if requests is None else None

    @cache
    def served() -> ReplayServer:
        if server is None:
            from engine.replay.server import ReplayConfig, ReplayServer

            folder, file = (None if path is None else Path(path) for path in (recording, profile))
            return ReplayServer.load(ReplayConfig(folder, file, slots=slots))
        return server() if callable(server) else server

    @cache
    def draw() -> Draw:
        if requests is not None:
            return requests
        from engine.replay.drawing import RecordedDrawing

        assert config is not None
        return RecordedDrawing(served(), config, classes, held_out)

    def make_engine(generator: np.random.Generator) -> Engine:
        return served().engine(draw()(generator), classes)

    return ServeEnv(make_engine, table, reward, decide_every, max_decisions, seed)
