"""One run of the test: a contender, or the oracle, through a disturbance under one seed.

A function of a task, for processes: what is loaded or drawn is kept by process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engine.observability.outputs import Observers
from engine.protocol import Controller
from engine.replay.drawing import RecordedDrawing
from engine.workload import episode_generator
from eval import best_fixed, runner
from eval.adaptation_test.course import Acts, course_of
from eval.adaptation_test.disturbances import Disturbed, disturbed
from eval.oracle import ORACLE, Switching
from eval.replay_world import World
from eval.windows import TimelineObserver, listen
from policies import registry

SEARCHED = 8
"""Training seeds of the oracle's sweep."""


@dataclass(frozen=True)
class Setting:
    """Where all runs of a test take place."""

    world: World
    scale: float = 1.0
    """Of all times."""
    load: float = 1.0
    """Factor on all loads."""

    def disturbed(self, name: str) -> Disturbed:
        """The disturbance of that name."""
        return disturbed(self.scale, self.load)[name]


@dataclass(frozen=True)
class Task:
    """One run. `spec` is as `policies.registry` takes it; the oracle has a tree a stretch."""

    setting: Setting
    disturbance: str
    seed: int
    spec: str = ""
    trees: tuple[str, ...] = ()


def served(task: Task) -> dict[str, Any]:
    """The run's course and figures; `failed` says what a controller raised, if it did."""
    of = task.setting.disturbed(task.disturbance)
    try:
        return _run(task, of)
    except Exception as error:  # the cell is marked with it, and the others stand
        return {"failed": f"{type(error).__name__}: {error}"}


def drawing(setting: Setting, name: str, held_out: bool) -> RecordedDrawing:
    """Episodes of a disturbance, of held-out or of training texts."""
    return _drawing(setting, name, held_out)


def _run(task: Task, of: Disturbed) -> dict[str, Any]:
    world, controller = task.setting.world, _controller(task, of)
    requests = drawing(task.setting, task.disturbance, True)(episode_generator(task.seed))
    engine = world.engine(task.spec or task.trees[0], requests, {"horizon_s": of.end_s})
    heard, acts = listen(controller), Acts()
    timeline = TimelineObserver(heard)
    with Observers([timeline, acts]) as observers:
        run = runner.serve(controller.name, heard, task.seed, engine, observers=observers)
    metrics = run.metrics
    return {
        "course": course_of(timeline.timeline(), acts, of.end_s, of.window_s).plain(),
        "attainment": metrics.attainment,
        "goodput_tps": metrics.goodput_tps,
        "valid_tps": metrics.valid_tps,
        "requests": metrics.requests,
        "waste_share": run.waste_share,
        "joules_per_valid_token": run.joules_per_valid_token,
        "lossless": controller.lossless,
    }


def _controller(task: Task, of: Disturbed) -> Controller:
    if task.trees:
        starts_s = [stretch.start_s for stretch in of.stretches]
        return Switching(starts_s, [registry.make(tree) for tree in task.trees])
    controller = registry.make(task.spec)
    # One that the sweep has to find was found before the first run, and is read from the cache.
    best_fixed.settle({ORACLE: controller}, task.setting.world.server, of.config, of.end_s)
    return controller


@lru_cache(maxsize=4)
def _drawing(setting: Setting, name: str, held_out: bool) -> RecordedDrawing:
    config = setting.disturbed(name).config
    return RecordedDrawing(setting.world.server, config, held_out=held_out)
