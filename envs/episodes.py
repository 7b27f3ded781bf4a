"""What episodes on replay are made of: a server and who draws its requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.drawing import Draw
from engine.workload import WorkloadConfig
from envs.live import chosen_workload

if TYPE_CHECKING:
    from engine.replay.server import ReplayServer


class ReplayEpisodes:
    """A replay server as the options of `envs.replay.make_replay` name it, and its requests."""

    def __init__(
        self,
        server: ReplayServer | Callable[[], ReplayServer] | None = None,
        recording: str | Path | None = None,
        profile: str | Path | None = None,
        slots: int = 16,
        workload: str | WorkloadConfig = "shifting",
        load: float | None = None,
        held_out: bool = False,
        requests: Draw | None = None,
        classes: ClassTable = DEFAULT_CLASSES,
    ) -> None:
        """Nothing is loaded yet. Raises UserError for a workload that is none."""
        self._given, self._recording, self._profile = server, recording, profile
        self._slots, self._held_out, self._requests = slots, held_out, requests
        self._workload = chosen_workload(workload, load) if requests is None else None
        self.classes = classes

    @cached_property
    def server(self) -> ReplayServer:
        """The server. Raises UserError where a recording or profile cannot be had or used."""
        if self._given is None:
            from engine.replay.server import ReplayConfig, ReplayServer

            folder, file = (
                None if path is None else Path(path) for path in (self._recording, self._profile)
            )
            return ReplayServer.load(ReplayConfig(folder, file, slots=self._slots))
        return self._given() if callable(self._given) else self._given

    @cached_property
    def draw(self) -> Draw:
        """From a generator to an episode's requests."""
        if self._requests is not None:
            return self._requests
        from engine.replay.drawing import RecordedDrawing

        assert self._workload is not None
        return RecordedDrawing(self.server, self._workload, self.classes, self._held_out)
