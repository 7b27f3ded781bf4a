"""Controllers on replay under shifting load, by seed, what is served kept until all is.

The load is the preset's, ten minutes of regimes, multiplied by a factor. Whoever is compared serves
the same arrivals. What is unfinished at the end of a run counts as a miss, for all alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bench import Bench
from benchmarks.learning_pool import all_of
from engine.protocol import Floats
from engine.workload import FIRST_HELD_OUT_SEED, WorkloadConfig, episode_generator
from eval.compare import ARRIVING, over
from train.config import Serving

if TYPE_CHECKING:
    from engine.drawing import Draw
    from engine.replay.server import ReplayServer

EPISODE_S, QUICK_EPISODE_S = 600.0 / ARRIVING, 40.0
"""Of a run: requests arrive in its first six tenths, which are the ten minutes of the preset."""
FIGURES = ("violations", "goodput", "attainment", "requests")
"""Of a run: requests that missed an objective, tokens a second of those that met theirs, percent of
requests that met theirs, and how many there were."""
Table = dict[str, dict[str, list[float]]]
"""By controller and figure [seeds]."""


@dataclass(frozen=True)
class Setting:
    """Under what is compared. Training seeds draw training texts, held-out ones held-out texts."""

    seconds: float
    load: float | None = None
    """Factor on the loads of the preset."""
    held_out: bool = True

    @property
    def serving(self) -> Serving:
        """As the commands take it."""
        return Serving(workload="shifting", load=self.load)

    @property
    def workload(self) -> WorkloadConfig:
        """As it is served."""
        from train.evaluation import served_workload

        return over(served_workload(self.serving), ARRIVING * self.seconds)


@dataclass(frozen=True)
class Task:
    """One run."""

    setting: Setting
    spec: str
    seed: int


def episode_s(bench: Bench) -> float:
    """How long a run is."""
    return QUICK_EPISODE_S if bench.quick else EPISODE_S


def compared(
    bench: Bench,
    setting: Setting,
    specs: Mapping[str, str],
    seeds: int,
    keep: str,
    first_seed: int = FIRST_HELD_OUT_SEED,
) -> Table:
    """Serve so many seeds with each of `specs`, which say by label how the registry names them.

    What is served is kept under the name `keep` until all of it is. Raises UserError.
    """
    chosen = range(first_seed, first_seed + seeds)
    tasks = {
        f"{label} {seed}": Task(setting, spec, seed)
        for seed in chosen
        for label, spec in specs.items()
    }
    made_with = {
        "setting": asdict(setting),
        "specs": {label: f"{spec} {_weights_of(spec)}" for label, spec in specs.items()},
        "seeds": [chosen.start, chosen.stop],
    }
    found = all_of(bench, served, tasks, keep, made_with)
    return {
        label: {
            name: [found[f"{label} {seed}"][place] for seed in chosen]
            for place, name in enumerate(FIGURES)
        }
        for label in specs
    }


def served(task: Task) -> list[float]:
    """The figures of one run, in the order of FIGURES."""
    from engine.classes import DEFAULT_CLASSES
    from eval import contenders, runner
    from policies import registry

    setting = task.setting
    server, draw = _served(setting)
    controller = registry.make(task.spec)
    settings = replace(server.settings, horizon_s=setting.seconds)
    makers = contenders.engine_makers(server, {"it": controller}, DEFAULT_CLASSES, settings)
    engine = makers["it"](draw(episode_generator(task.seed)))
    metrics = runner.serve("it", controller, task.seed, engine).metrics
    met = 100.0 * metrics.attainment
    return [float(metrics.violations), metrics.goodput_tps, met, float(metrics.requests)]


def best_fixed(setting: Setting) -> str:
    """The fixed tree that a sweep on training arrivals finds best at the load, with its tree."""
    from engine.classes import DEFAULT_CLASSES
    from eval.best_fixed import best_tree

    server, _ = _served(setting)
    tree = best_tree(server, setting.workload, setting.seconds, DEFAULT_CLASSES).tree
    return f"best-fixed(depth={tree.depth}, width={tree.width}, nodes={tree.nodes})"


def best_capped(setting: Setting) -> str:
    """The fixed tree and batch cap that a sweep on training arrivals finds best at the load."""
    from engine.classes import DEFAULT_CLASSES
    from eval import best_fixed
    from policies.actions import most_running

    server, _ = _served(setting)
    found = best_fixed.best_capped(server, setting.workload, setting.seconds, DEFAULT_CLASSES)
    depth, width, nodes = found.tree
    batch = most_running(found.share, server.settings.limits.slots)
    return f"capped-tree({depth}, {width}, {nodes}, {batch})"


def figure(table: Table, label: str, name: str) -> Floats:
    """[seeds] of one controller."""
    return np.array(table[label][name], np.float64)


@lru_cache(maxsize=2)
def _served(setting: Setting) -> tuple[ReplayServer, Draw]:
    """Loaded once a process."""
    from engine.replay.server import ReplayServer
    from train.evaluation import drawing, load_server

    server = load_server(setting.serving)
    assert isinstance(server, ReplayServer)
    return server, drawing(server, setting.serving, setting.workload, setting.held_out)


def _weights_of(spec: str) -> str:
    """Of an exported controller what tells it from one that was trained again into its folder."""
    manifest = Path(spec) / "controller" / "manifest.json"
    if not manifest.is_file():
        return ""
    return hashlib.blake2b(manifest.read_bytes(), digest_size=8).hexdigest()
