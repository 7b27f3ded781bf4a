"""What the tests of a controller are served on: a replay server, loaded once a process.

Small and hashable, so that it goes to other processes as part of a task. What is served on it, and
by whom, is the test's.
"""

from __future__ import annotations

import hashlib
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
from eval import contenders
from eval.parts import MADE_WITH
from eval.versions import versions
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
    """What decides a run there, as JSON: runs of which it differs are not to be mixed.

    `specs` by the name that is shown, as `policies.registry` takes them; `settings` are the test's.
    """
    exported = {name: registry.exported_folder(spec) for name, spec in specs.items()}
    here = versions()
    return {
        "world": [str(world.profile), str(world.recording)],
        "server": key_of(world.server),
        "policies": dict(specs),
        "exports": {
            name: hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
            for name, folder in exported.items()
            if folder is not None
        },
        **{name: here[name] for name in MADE_WITH},
        **settings,
    }
