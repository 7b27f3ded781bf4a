"""What workers make and step in tests: engines whose steps are written down, and one on replay.

Light at import: every worker is a process that imports this file.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from policies.features import feature_table
from train.workers.process import Stepped

WIDTH = len(feature_table(DEFAULT_CLASSES.names))
CLASSES = len(DEFAULT_CLASSES.names)
SECRET = "the engine fell over"


def observed(life: int, episode: int, step: int) -> np.ndarray:
    """[WIDTH] says when it was seen: each life of a worker begins anew."""
    return np.full(WIDTH, life + episode / 10 + step / 1000, np.float32)


@dataclass(frozen=True)
class Script:
    """An engine of episodes of `length` decisions, each of half a second and a reward of 1."""

    lives: Path
    """A file that grows by a byte for every start."""
    fates: dict[int, str] = field(default_factory=dict)
    """What happens at the first step, by life; a life without one goes on."""
    at_start: str = ""
    """What happens whenever it is started."""
    length: int = 4

    def __call__(self) -> Scripted:
        with self.lives.open("a") as file:
            file.write(".")
        suffer(self.at_start)
        return Scripted(self, self.lives.stat().st_size)


class Scripted:
    """Its engine in one life of its worker."""

    def __init__(self, script: Script, life: int) -> None:
        self._script, self._life = script, life
        self._episode = self._step = 0
        self.seeds: list[int | None] = []

    def reset(self, seed: int | None) -> tuple[np.ndarray, dict[str, Any]]:
        self._episode, self._step = self._episode + 1, 0
        return observed(self._life, self._episode, 0), {"elapsed_s": 0.0, "seed": seed}

    def step(self, action: np.ndarray, share: float) -> Stepped:
        suffer(self._script.fates.get(self._life, ""))
        self._step += 1
        seen = observed(self._life, self._episode, self._step)
        info: dict[str, Any] = {
            **{"elapsed_s": 0.5, "busy_s": 0.5, "iterations": 2, "valid_tokens": 3},
            **{"emitted_tokens": 4, "energy_joules": 1.0, "share": share},
        }
        over = self._step == self._script.length
        if over:
            info["serving"] = {"attainment": 1.0, "goodput_tps": 6.0}
        begun = self.reset(None) if over else None
        return Stepped(seen, 1.0, info, np.ones((3, CLASSES)), False, begun)

    def close(self) -> None:
        """Nothing is held open."""


def suffer(fate: str) -> None:
    """One of the ways in which a worker ends."""
    if fate == "raise":
        raise RuntimeError(SECRET)
    if fate == "user":
        raise UserError("--profile x: of another set-up; measure one")
    if fate == "hang":
        time.sleep(600.0)
    if fate == "fault":
        faulthandler._sigsegv()  # type: ignore[attr-defined]  # what a broken kernel does
    if fate == "exit":
        os._exit(3)
    if fate == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Replayed:
    """A replay engine: what it serves repeats, so it can be compared with one of this process."""

    recording: Path
    profile: Path

    def __call__(self) -> Any:
        from train.workers.engine import LiveEngine

        env = replayed(self.recording, self.profile)
        return LiveEngine(env, env, None)  # type: ignore[arg-type]  # whom to close


def replayed(recording: Path, profile: Path) -> Any:
    """The environment that it steps."""
    from engine.workload import WorkloadConfig
    from envs.replay import make_replay

    work = WorkloadConfig(name="tiny", duration_s=1.0, rate_rps=12.0, max_tokens=8)
    return make_replay(
        recording=recording, profile=profile, workload=work, slots=3, decide_every=2,
        max_decisions=5,
    )  # fmt: skip


def tiny_live(_: Any) -> Any:
    """A live server in little time, whatever options name."""
    from engine.protocol import Limits
    from engine.tiny import tiny_server

    return tiny_server(limits=Limits(slots=4))
