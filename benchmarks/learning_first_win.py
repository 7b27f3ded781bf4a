"""How long `python train.py --policy ppo` trains until it beats the best fixed tree.

One training as everybody has it, on two cores. Whatever checkpoint it writes on the way, every half
minute, is copied, and afterwards each is exported and compared on held-out shifting traces: the
training's own clock counts, comparing does not. It beats where goodput is shown to be more, by
paired seeds, and violations are no more.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bench import Bench
from benchmarks.figures import Result
from benchmarks.learning_algorithms import TREE, against
from benchmarks.learning_runs import folder_of, trained
from benchmarks.learning_serving import Setting, best_fixed, compared, episode_s

POLICY = "ppo"
SAVED_EVERY_S = 30
SEEDS, QUICK_SEEDS = 10, 2


class Checkpoint(NamedTuple):
    """What training had come to."""

    minutes: float
    decisions: int
    controller: Path


def minutes(bench: Bench, _: str) -> Result:
    """Minutes of training after which the first checkpoint beats the best fixed tree."""
    copies = folder_of(bench) / "first-win"
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir(parents=True)
    copier = Copier(copies)
    options = ("--policy", POLICY, "--save-every-s", f"{SAVED_EVERY_S}")
    trained(bench, options, anew=True, watch=copier)
    found = [exported(copy) for copy in sorted(copies.glob("*.zip"))]
    setting = Setting(episode_s(bench))
    tree = best_fixed(setting)
    seeds = QUICK_SEEDS if bench.quick else SEEDS
    theirs = compared(bench, setting, {TREE: tree}, seeds, "first-win-tree")
    told: list[dict[str, Any]] = []
    for place, checkpoint in enumerate(found):
        spec = {POLICY: str(checkpoint.controller)}
        ours = compared(bench, setting, spec, seeds, f"first-win-{place}")
        told.append({"minutes": checkpoint.minutes, "decisions": checkpoint.decisions})
        told[-1] |= against(ours, theirs, TREE, bench.rng())
        if told[-1]["beats"]:
            break
    return first_of(told, len(found), tree)


def first_of(told: list[dict[str, Any]], checkpoints: int, tree: str) -> Result:
    """The first that beats; endless where none of what was compared, in order, does."""
    last = told[-1]
    won = bool(last["beats"])
    return Result(
        float(last["minutes"]) if won else float("inf"),
        f"{last['minutes']:.1f} min" if won else f"not within {last['minutes']:.1f} min",
        note=f"{last['decisions']:,} decisions; {last['text']} against {tree}; checkpoint "
        f"{len(told)} of {checkpoints}",
        raw={"checkpoints": told, "best_fixed": tree},
    )


class Copier:
    """Copies a run's last checkpoint whenever it is another one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._seen, self._count = folder, -1, 0

    def __call__(self, run: Path) -> None:
        """Look once."""
        try:
            with (run / "checkpoints" / "last.zip").open("rb") as file:  # replaced, never rewritten
                at = os.fstat(file.fileno()).st_mtime_ns
                if at == self._seen:
                    return
                content = file.read()
        except FileNotFoundError:
            return
        (self.folder / f"{self._count:03d}.zip").write_bytes(content)
        self._seen, self._count = at, self._count + 1


def exported(checkpoint: Path) -> Checkpoint:
    """A checkpoint as a controller beside it."""
    from train.algorithms.registry import ALGORITHMS
    from train.config import Learning, TrainConfig
    from train.export import export
    from train.saved_model import load_model
    from train.session import training_figures

    model = load_model(checkpoint, ALGORITHMS[POLICY])
    figures = training_figures(model, TrainConfig(learning=Learning(policy=POLICY)), "", None)
    run = checkpoint.with_suffix("")
    export(model, run / "controller", Learning().decide_every, figures)
    return Checkpoint(model.trained_s / 60.0, int(model.num_timesteps), run)
