"""What the tests of a controller are served on: a replay server, loaded once a process.

Small and hashable, so that it goes to other processes as part of a task. What is served on it, and
by whom, is the test's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.classes import DEFAULT_CLASSES
from engine.loop import Engine
from engine.replay.capacity_store import key_of
from engine.replay.server import ReplayConfig, ReplayServer
from engine.request import Request
from engine.settings import EngineSettings
from eval import contenders, kept_runs
from policies import registry

FIELD = "adaserve-qwen-32b-a100"
"""The field's own times, on which settings differ: the shipped processor's reward few drafts."""


@dataclass(frozen=True)
class World:
    """A recording and a hardware profile."""

    profile: str | None = FIELD
    """Name or file; None: the one that ships with the recording."""
    recording: Path | None = None
    """Folder; None: the one that ships with DraftGym."""

    @property
    def server(self) -> ReplayServer:
        """Loaded once a process. Raises UserError."""
        return _server(self)

    def engine(self, spec: str, requests: list[Request], settings: Mapping[str, object]) -> Engine:
        """A fresh engine as the contender `spec` is served on, with these `settings` changed.

        A system keeps its own (`eval.contenders`).
        """
        changed: EngineSettings = replace(self.server.settings, **settings)  # type: ignore[arg-type]
        one = {spec: registry.make(spec)}
        return contenders.engine_makers(self.server, one, DEFAULT_CLASSES, changed)[spec](requests)


@lru_cache(maxsize=2)
def _server(world: World) -> ReplayServer:
    return ReplayServer.load(ReplayConfig(recording=world.recording, profile=world.profile))


def made_with(world: World, specs: Mapping[str, str], **settings: Any) -> dict[str, Any]:
    """As of `eval.kept_runs`, of runs in a world."""
    place = {"world": [str(world.profile), str(world.recording)], "server": key_of(world.server)}
    return kept_runs.made_with(specs, **place, **settings)
