"""One run of the frontier: a contender at a demand under an overload policy and a seed.

A function of a task, for processes: what is loaded or drawn is kept by process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from engine.classes import DEFAULT_CLASSES
from engine.observability.outputs import Observers
from engine.overload import OverloadRule
from engine.replay.drawing import RecordedDrawing
from engine.workload import WorkloadConfig, episode_generator, workload
from eval import best_fixed, runner
from eval.compare import ARRIVING
from eval.frontier.audit import Work, audited
from eval.replay_world import World
from policies import registry


@dataclass(frozen=True)
class Task:
    """One run of `seconds`; requests arrive in its first part, and the rest drains."""

    world: World
    seconds: float
    load: float
    """Demand in multiples of capacity."""
    overload: str
    spec: str
    """As `policies.registry` takes it."""
    seed: int


def workload_of(load: float, seconds: float) -> WorkloadConfig:
    """Every class alike, at a steady demand."""
    return replace(workload("steady"), load=load, duration_s=ARRIVING * seconds)


def served(task: Task) -> dict[str, Any]:
    """What `audit.audited` says of the run; `failed` what the controller raised, if it did."""
    try:
        return _run(task)
    except Exception as error:  # the cell is marked with it, and the others stand
        return {"failed": f"{type(error).__name__}: {error}"}


def _run(task: Task) -> dict[str, Any]:
    world, config = task.world, workload_of(task.load, task.seconds)
    controller = registry.make(task.spec)
    # Its tree was found before the first run and is read from the cache.
    best_fixed.settle({"it": controller}, world.server, config, task.seconds)
    requests = _drawing(world, task.load, task.seconds)(episode_generator(task.seed))
    rule = OverloadRule(task.overload)  # type: ignore[arg-type]
    settings = {"horizon_s": task.seconds, "overload": rule}
    engine = world.engine(task.spec, requests, settings)
    work = Work(DEFAULT_CLASSES)
    with Observers([work]) as observers:
        run = runner.serve("it", controller, task.seed, engine, observers=observers)
    return audited(run, work, DEFAULT_CLASSES, engine.unloaded_tpot_s)


@lru_cache(maxsize=16)
def _drawing(world: World, load: float, seconds: float) -> RecordedDrawing:
    return RecordedDrawing(world.server, workload_of(load, seconds), held_out=True)
