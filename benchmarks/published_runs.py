"""Contenders in published worlds, over seeds, in two processes.

A seed draws acceptance, texts and, where the trace is a window, its start; all contenders of a seed
meet the same, and are served one after the other in one process, since drawing a seed takes as long
as serving it once. What is unfinished when a run is over counts as a miss for all alike. Trees that
never change are served by a fleet, a replica each, which is the engine bit for bit and takes a
hundredth of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from benchmarks.figures import UnmeasuredError
from benchmarks.published_world import World
from engine.classes import ClassTable
from engine.errors import UserError
from engine.protocol import Controller, Floats
from engine.replay.capacity_trees import Tree, planned
from engine.replay.drawing import RecordedDrawing
from engine.replay.fleet.fleet import Fleet
from engine.replay.server import ReplayServer
from engine.request import Request
from engine.settings import EngineSettings
from engine.workload import FIRST_HELD_OUT_SEED, episode_generator
from eval import contenders, runner
from eval.metrics import EpisodeMetrics, summarise
from eval.pool import each_made
from policies import registry
from policies.fixed import FixedTree
from policies.systems import System

CHUNK_TOKENS = 1024
"""Prompt tokens between two steps, as the artifact's scripts have it."""
MOST_ITERATIONS = 10**6
NAN = float("nan")
PROMPTS_FIRST = "vllm"
"""A system whose name begins so reads prompts before it decodes on; others read them along."""


class Served(NamedTuple):
    """One controller on one episode."""

    metrics: EpisodeMetrics
    tokens_per_iteration: float
    """NaN where a fleet served."""

    @property
    def missed(self) -> int:
        """Requests whose mean time per token was above their objective, or that did not end."""
        return self.metrics.violations


Table = dict[str, tuple[Served, ...]]
"""By contender, in the order of the seeds."""


@dataclass(frozen=True)
class Task:
    """One seed of a world under controllers: by label, how the registry names them."""

    where: str
    world: World
    specs: Mapping[str, str]
    seed: int
    horizon_s: float


def compared(
    worlds: Mapping[str, World],
    specs: Mapping[str, str],
    seeds: int,
    say: Callable[[str], None],
    horizon_s: float,
    first_seed: int = FIRST_HELD_OUT_SEED,
) -> dict[str, Table]:
    """In each of `worlds`, serve `seeds` episodes, `horizon_s` each at most, with each of `specs`.

    These say by label how the registry names a controller. Raises UnmeasuredError where it cannot
    make one.
    """
    for spec in specs.values():
        need_controller(spec)
    chosen = range(first_seed, first_seed + seeds)
    tasks = [
        Task(where, world, specs, seed, horizon_s)
        for where, world in worlds.items()
        for seed in chosen
    ]
    found: dict[tuple[str, int], dict[str, Served]] = {}
    for task, of_seed in each_made(served, tasks):
        found[task.where, task.seed] = of_seed
        say(f"{task.where}: seed {task.seed}, {len(found)} of {len(tasks)}")
    return {
        where: {label: tuple(found[where, seed][label] for seed in chosen) for label in specs}
        for where in worlds
    }


def served(task: Task) -> dict[str, Served]:
    """One episode under every controller of the task."""
    servers = task.world.servers(task.seed)
    classes = task.world.classes(servers.apart)
    # Either server would draw the same requests: the two differ in what prompts cost.
    draw = RecordedDrawing(servers.apart, task.world.work, classes, held_out=True)
    found: dict[str, Served] = {}
    fleets: dict[tuple[bool, EngineSettings], dict[str, Tree]] = {}
    for label, spec in task.specs.items():
        controller, mixed = registry.make(spec), not spec.startswith(PROMPTS_FIRST)
        server = servers.mixed if mixed else servers.apart
        settings = replace(server.settings, prefill_tokens=CHUNK_TOKENS, horizon_s=task.horizon_s)
        tree = fixed_tree(controller)
        if tree is not None:
            if isinstance(controller, System):
                settings = contenders.scheduled(settings, controller.scheduling)
            fleets.setdefault((mixed, settings), {})[label] = tree
            continue
        makers = contenders.engine_makers(server, {label: controller}, classes, settings)
        requests = draw(episode_generator(task.seed))
        run = runner.serve(label, controller, task.seed, makers[label](requests), MOST_ITERATIONS)
        found[label] = Served(run.metrics, run.tokens_per_iteration)
    for (mixed, settings), trees in fleets.items():
        server = servers.mixed if mixed else servers.apart
        episodes = [draw(episode_generator(task.seed)) for _ in trees]
        metrics = _by_fleet(server, settings, classes, tuple(trees.values()), episodes)
        found |= {label: Served(m, NAN) for label, m in zip(trees, metrics, strict=True)}
    return found


def fixed_tree(controller: Controller) -> Tree | None:
    """The tree of a controller that never changes it; None for others, and under a batch cap."""
    if isinstance(controller, System):
        if controller.scheduling.max_running is not None:
            return None
        controller = controller.controller
    if isinstance(controller, FixedTree):
        return Tree(controller.depth, controller.width, controller.nodes)
    return None


def need_controller(spec: str) -> None:
    """Raise UnmeasuredError where the registry cannot make it."""
    try:
        registry.make(spec)
    except UserError as error:
        raise UnmeasuredError(f"no controller {spec}: {error}") from error


def is_there(spec: str) -> bool:
    """Whether the registry can make it."""
    try:
        need_controller(spec)
    except UnmeasuredError:
        return False
    return True


def each(runs: tuple[Served, ...], figure: Callable[[EpisodeMetrics], float]) -> Floats:
    """[seeds] of one figure."""
    return np.array([figure(run.metrics) for run in runs], float)


def violations(runs: tuple[Served, ...]) -> Floats:
    """[seeds] requests that missed an objective."""
    return each(runs, lambda m: m.violations)


def goodput(runs: tuple[Served, ...]) -> Floats:
    """[seeds] tokens a second of requests that met theirs."""
    return each(runs, lambda m: m.goodput_tps)


def attained(runs: tuple[Served, ...]) -> Floats:
    """[seeds] percent of requests that met their TPOT objective, as AdaServe counts."""
    return each(runs, lambda m: 100 * m.tpot_attainment)


def _by_fleet(
    server: ReplayServer,
    settings: EngineSettings,
    classes: ClassTable,
    trees: Sequence[Tree],
    episodes: Sequence[Sequence[Request]],
) -> list[EpisodeMetrics]:
    """A replica for each tree, on its own requests."""
    plain = server.roomy(settings.limits.slots)
    plain.settings = replace(settings, overload=plain.settings.overload)
    limits = settings.limits
    fleet = Fleet(plain, len(trees), classes)
    for replica, requests in enumerate(episodes):
        fleet.begin(replica, requests)
    fleet.serve(
        planned(trees, len(classes.classes), limits.slots * limits.max_nodes), MOST_ITERATIONS
    )
    return [summarise(fleet.records(replica), classes) for replica in range(len(trees))]
