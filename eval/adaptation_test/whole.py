"""The whole test: what is served, in two processes and kept by run, and the part that is written.

Light on imports, since the command's `--help` reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import UserError

if TYPE_CHECKING:
    from eval.adaptation_test.disturbances import Disturbed
    from eval.adaptation_test.serving import Setting, Task

POLICIES = (
    "autoregressive",
    "best-fixed",
    "adaserve",
    "slack-priced",
    "turbospec",
    "adaptivespec-tree",
    "sglang-ema",
    "hedge",
)
"""Of the registry, lossless ones that need no training and decide in different ways."""
SEEDS, QUICK_SEEDS = 10, 3
QUICK_SCALE = 0.5
"""Of all times: quick runs are half as long."""
OUT = Path("runs/adaptation")
PART = "adaptation"
Say = Callable[[str], None]
Oracle = Mapping[str, Sequence[Mapping[str, Any]]]
"""By disturbance what `oracle.searched` found, a stretch each."""


@dataclass(frozen=True)
class Options:
    """What is tested, and how thoroughly."""

    policies: tuple[str, ...] = POLICIES
    seeds: int = SEEDS
    quick: bool = False
    profile: str | None = None
    """None: `eval.replay_world.FIELD`."""
    recording: Path | None = None
    load: float = 1.0
    scale: float = 1.0
    """Of all times."""
    out: Path = OUT
    command: str = "python -m eval.adaptation_test"

    def check(self) -> None:
        """Raise UserError for what cannot be meant."""
        if self.seeds < 1:
            raise UserError(f"--seeds {self.seeds}: expected a whole number of at least 1")
        if not 0.05 <= self.load <= 5.0:
            raise UserError(f"--load {self.load:g}: expected a factor from 0.05 to 5")
        if not 0.1 <= self.scale <= 100.0:
            raise UserError(f"--scale {self.scale:g}: expected a factor from 0.1 to 100")

    @property
    def chosen_seeds(self) -> list[int]:
        """Held-out ones, the same for everybody."""
        from engine.workload import FIRST_HELD_OUT_SEED

        return list(range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + self.seeds))


def tested(options: Options, say: Say) -> dict[str, Any]:
    """Run what is not done, write adaptation.parquet and adaptation.json; the summary.

    `say` is told how far it is. Raises UserError.
    """
    options.check()
    from eval import best_fixed, contenders
    from eval.adaptation_test.disturbances import disturbed
    from eval.adaptation_test.judging import rows_of
    from eval.adaptation_test.oracle import Sweep, searched
    from eval.adaptation_test.serving import Setting, served
    from eval.adaptation_test.summary import summary_of
    from eval.kept_runs import Kept, all_made
    from eval.parts import read_summary, write_part
    from eval.replay_world import FIELD, World, made_with

    began_s = time.monotonic()
    controllers = contenders.marked(contenders.named(options.policies))
    world = World(options.profile or FIELD, options.recording)
    scale = options.scale * (QUICK_SCALE if options.quick else 1.0)
    setting = Setting(world, scale, options.load)
    say(world.server.describe())
    disturbances = disturbed(setting.scale, setting.load)
    specs = dict(zip(controllers, options.policies, strict=True))
    kept = Kept(
        options.out / f"{PART}.unfinished",
        made_with(world, specs, scale=setting.scale, load=setting.load),
    )
    sweeps = {f"oracle of {of.title}": Sweep(setting, name) for name, of in disturbances.items()}
    oracle = dict(
        zip(disturbances, all_made(searched, sweeps, kept, say, "sweep").values(), strict=True)
    )
    fixed = {
        name: best_fixed.settle(
            contenders.named(options.policies), world.server, of.config, of.end_s
        )
        for name, of in disturbances.items()
    }
    tasks = _tasks(setting, disturbances, oracle, specs, options.chosen_seeds)
    labels = {_label(disturbances, key): key for key in tasks}
    made = all_made(served, {label: tasks[key] for label, key in labels.items()}, kept, say, PART)
    runs = {labels[label]: run for label, run in made.items()}
    rows = rows_of(disturbances, runs)
    summary = {
        **summary_of(disturbances, list(specs), options.chosen_seeds, oracle, runs, rows),
        "world": world.server.describe(),
        "best_fixed": fixed,
        "quick": options.quick,
        "load": options.load,
        "scale": scale,
        "seconds": time.monotonic() - began_s,
    }
    write_part(options.out, PART, rows, summary, options.chosen_seeds, options.command)
    kept.forget()
    return read_summary(options.out / f"{PART}.json")


def _tasks(
    setting: Setting,
    disturbances: Mapping[str, Disturbed],
    oracle: Oracle,
    specs: Mapping[str, str],
    seeds: Sequence[int],
) -> dict[tuple[str, str, int], Task]:
    """By disturbance, controller and seed; a seed is whole before the next one begins."""
    from eval.adaptation_test.serving import Task
    from eval.oracle import ORACLE

    found = {}
    for seed in seeds:
        for name in disturbances:
            trees = tuple(best["tree"] for best in oracle[name])
            found[name, ORACLE, seed] = Task(setting, name, seed, trees=trees)
            for who, spec in specs.items():
                found[name, who, seed] = Task(setting, name, seed, spec=spec)
    return found


def _label(disturbances: Mapping[str, Disturbed], key: tuple[str, str, int]) -> str:
    name, who, seed = key
    return f"{disturbances[name].title} · {who} · seed {seed}"
