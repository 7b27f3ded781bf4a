"""One cell, served with every controller: its rows, whatever a controller does there.

Each controller serves the cell's seeds, the same arrivals as the others. One that raises is marked
in this cell, and the others stand; what the message says is kept, prompts are made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.classes import DEFAULT_CLASSES
from engine.protocol import Controller
from engine.workload import episode_generator
from eval import best_fixed
from eval.contenders import engine_makers, named
from eval.matrix.axes import Cell
from eval.matrix.resources import Resources
from eval.matrix.rows import fault_row, rows_of
from eval.matrix.world import World, world_of
from eval.runner import serve_recorded


@dataclass(frozen=True)
class Work:
    """What is served in every cell."""

    policies: tuple[str, ...]
    seeds: int
    requests: int
    """About as many a run."""


def served(cell: Cell, work: Work) -> list[dict[str, Any]]:
    """The rows of a cell. Raises UserError for what no controller is to blame for."""
    world = world_of(cell, work.requests)
    rows: list[dict[str, Any]] = []
    for spec in work.policies:
        ((name, controller),) = named([spec]).items()  # afresh: nobody carries over what it learned
        try:
            rows += _of_controller(cell, world, work, name, controller)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
            rows.append(fault_row(cell, name, cell.seeds(work.seeds), fault))
    return rows


def _of_controller(
    cell: Cell, world: World, work: Work, name: str, controller: Controller
) -> list[dict[str, Any]]:
    contenders = {name: controller}
    best_fixed.settle(contenders, world.server, world.config, world.seconds)
    settings = replace(world.server.settings, horizon_s=world.seconds)
    make = engine_makers(world.server, contenders, DEFAULT_CLASSES, settings)[name]
    runs, records, held = [], [], []
    for seed in cell.seeds(work.seeds):
        seen = Resources()
        engine = make(world.draw(episode_generator(seed)))
        run, of_run = serve_recorded(name, controller, seed, engine, observers=[seen])
        runs.append(run)
        records.append(of_run)
        held.append(seen)
    return rows_of(cell, name, runs, records, held, DEFAULT_CLASSES, world.capacity_tps)


def names_of(policies: Sequence[str]) -> list[str]:
    """How the rows call them. Raises UserError for one that nobody knows."""
    return list(named(policies))
