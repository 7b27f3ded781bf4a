"""The whole sweep: what is served, in two processes and kept by run, and the part that is written.

Light on imports, since the command's `--help` reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from engine.errors import UserError

if TYPE_CHECKING:
    from eval.frontier.serving import Task
    from eval.frontier.summary import Key
    from eval.replay_world import World

POLICIES = ("slack-priced", "adaserve", "best-fixed", "autoregressive")
OVERLOADS = ("none", "reject", "degrade", "minimum-progress")
LOADS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
SEEDS, QUICK_SEEDS = 5, 2
SECONDS, QUICK_SECONDS = 100.0, 40.0
OUT = Path("runs/frontier")
PART = "frontier"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What is swept, and how thoroughly."""

    policies: tuple[str, ...] = POLICIES
    overloads: tuple[str, ...] = OVERLOADS
    loads: tuple[float, ...] = LOADS
    seeds: int = SEEDS
    seconds: float = SECONDS
    profile: str | None = None
    """None: `eval.replay_world.FIELD`."""
    recording: Path | None = None
    out: Path = OUT
    command: str = "python -m eval.frontier"

    def check(self) -> None:
        """Raise UserError for what cannot be meant."""
        from engine.overload import PolicyName

        if self.seeds < 1:
            raise UserError(f"--seeds {self.seeds}: expected a whole number of at least 1")
        if self.seconds < 10.0:
            raise UserError(f"--seconds {self.seconds:g}: expected at least 10")
        known = get_args(PolicyName)
        for name in self.overloads:
            if name not in known:
                raise UserError(f"--overload {name}: expected one of {', '.join(known)}")
        for load in self.loads:
            if not 0.05 <= load <= 10.0:
                raise UserError(f"--loads {load:g}: expected multiples of capacity, 0.05 to 10")
        for name, of in (("overload", self.overloads), ("loads", self.loads)):
            if len(set(of)) < len(of):
                raise UserError(f"--{name}: one is named twice; name each once")

    @property
    def chosen_seeds(self) -> list[int]:
        """Held-out ones, the same for everybody."""
        from engine.workload import FIRST_HELD_OUT_SEED

        return list(range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + self.seeds))


def swept(options: Options, say: Say) -> dict[str, Any]:
    """Run what is not done, write frontier.parquet and frontier.json; the summary.

    `say` is told how far it is. Raises UserError.
    """
    options.check()
    from eval import best_fixed, contenders
    from eval.frontier.serving import served, workload_of
    from eval.frontier.summary import rows_of, summary_of
    from eval.kept_runs import Kept, all_made
    from eval.parts import read_summary, write_part
    from eval.replay_world import FIELD, World, made_with

    began_s = time.monotonic()
    controllers = contenders.marked(contenders.named(options.policies))
    world = World(options.profile or FIELD, options.recording)
    server, seconds = world.server, options.seconds
    say(server.describe())
    fixed = {
        f"{load:g}": best_fixed.settle(
            contenders.named(options.policies), server, workload_of(load, seconds), seconds
        )
        for load in options.loads
    }
    specs = dict(zip(controllers, options.policies, strict=True))
    tasks = _tasks(options, world, specs)
    labels = {
        " · ".join((c, o, f"{load:g} ×", f"seed {s}")): (c, o, load, s) for c, o, load, s in tasks
    }
    kept = Kept(options.out / f"{PART}.unfinished", made_with(world, specs, seconds=seconds))
    made = all_made(served, {label: tasks[key] for label, key in labels.items()}, kept, say, PART)
    runs = {labels[label]: run for label, run in made.items()}
    summary = {
        **summary_of(
            list(specs), options.overloads, sorted(options.loads), options.chosen_seeds, runs
        ),
        "world": server.describe(),
        "best_fixed": fixed,
        "run_s": seconds,
        "seconds": time.monotonic() - began_s,
    }
    write_part(options.out, PART, rows_of(runs), summary, options.chosen_seeds, options.command)
    kept.forget()
    return read_summary(options.out / f"{PART}.json")


def _tasks(options: Options, world: World, specs: dict[str, str]) -> dict[Key, Task]:
    """By controller, overload policy, demand and seed; a seed is whole before the next one."""
    from eval.frontier.serving import Task

    return {
        (name, overload, load, seed): Task(world, options.seconds, load, overload, spec, seed)
        for seed in options.chosen_seeds
        for load in options.loads
        for overload in options.overloads
        for name, spec in specs.items()
    }
