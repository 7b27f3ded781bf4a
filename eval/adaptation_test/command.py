"""The command: options, all runs in two processes, and what is written and shown of them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import UserError

POLICIES = (
    "autoregressive",
    "best-fixed",
    "adaserve",
    "slack-priced",
    "turbospec",
    "adaptivespec",
    "sglang-ema",
    "hedge",
)
SEEDS, QUICK_SEEDS = 10, 3
QUICK_SCALE = 0.5
"""Of all times: quick runs are half as long."""
OUT = Path("runs/adaptation")
PART = "adaptation"
Say = Callable[[str], None]


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
    out: Path = OUT
    command: str = "python -m eval.adaptation_test"

    def check(self) -> None:
        """Raise UserError for what cannot be meant."""
        if self.seeds < 1:
            raise UserError(f"--seeds {self.seeds}: expected a whole number of at least 1")
        if not 0.05 <= self.load <= 5.0:
            raise UserError(f"--load {self.load:g}: expected a factor from 0.05 to 5")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m eval.adaptation_test",
        description="See how controllers come through seven disturbances on replay, against an "
        "oracle that changes to the best fixed tree of each stretch. A run that was cut goes on "
        "when the same is typed again.",
    )
    add = made.add_argument
    add("--policy", nargs="+", default=list(POLICIES), metavar="NAME", help="controllers, systems "
        "or run folders, as evaluate.py takes them (%(default)s)")  # fmt: skip
    add("--seeds", type=int, help=f"of the arrivals ({SEEDS}, with --quick {QUICK_SEEDS})")
    add("--quick", action="store_true", help="half as long, fewer seeds; nothing is left out")
    add("--profile", help="hardware profile, a published one by name or a file "
        "(adaserve-qwen-32b-a100)")  # fmt: skip
    add("--recording", type=Path, help="folder; none: the one that ships with DraftGym")
    add("--load", type=float, default=1.0, help="factor on all loads (%(default)s)")
    add("--out", type=Path, default=OUT, help="results folder (%(default)s)")
    return made


def main(argv: Sequence[str]) -> int:
    """Run, write and show; 0 done, 2 for bad input, 130 when stopped."""
    given = parser().parse_args(argv)
    from eval.parts import typed

    quick_seeds = QUICK_SEEDS if given.quick else SEEDS
    options = Options(
        policies=tuple(given.policy),
        seeds=quick_seeds if given.seeds is None else given.seeds,
        quick=given.quick,
        profile=given.profile,
        recording=given.recording,
        load=given.load,
        out=given.out,
        command=typed("-m eval.adaptation_test", argv),
    )
    try:
        from rich.console import Console

        console = Console()
        if not console.is_terminal:
            console = Console(width=140)
        from eval.adaptation_test.telling import show

        show(tested(options, _to_stderr), console)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"stopped; what is done is kept in {options.out}, and the same command goes on",
              file=sys.stderr)  # fmt: skip
        return 130
    print(f"results     {options.out}/{PART}.json, {PART}.parquet")
    print(f"next        python -m eval.report {options.out}")
    return 0


def tested(options: Options, say: Say) -> dict[str, Any]:
    """Run what is not done, write adaptation.parquet and adaptation.json; the summary.

    Raises UserError.
    """
    options.check()
    from engine.workload import FIRST_HELD_OUT_SEED
    from eval import best_fixed, contenders
    from eval.adaptation_test.judging import rows_of
    from eval.adaptation_test.oracle import Sweep, searched
    from eval.adaptation_test.serving import Setting, Task, served
    from eval.adaptation_test.summary import summary_of
    from eval.kept_runs import Kept, all_made
    from eval.oracle import ORACLE
    from eval.parts import read_summary, write_part
    from eval.replay_world import FIELD, World
    from eval.versions import versions

    began_s = time.monotonic()
    controllers = contenders.named(options.policies)
    world = World(options.profile or FIELD, options.recording)
    setting = Setting(world, QUICK_SCALE if options.quick else 1.0, options.load)
    server = world.server
    say(f"{server.describe()}")
    of = {name: setting.disturbed(name) for name in _names(setting)}
    seeds = list(range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + options.seeds))
    made_with = {
        "setting": [str(world.profile), str(world.recording), setting.scale, setting.load],
        "revision": versions()["revision"],
    }
    kept = Kept(options.out / f"{PART}.unfinished", made_with)
    sweeps = {f"oracle of {of[name].title}": Sweep(setting, name) for name in of}
    trees = dict(zip(of, all_made(searched, sweeps, kept, say, "sweep").values(), strict=True))
    fixed: dict[str, list[str]] = {}
    for name, one in of.items():
        fixed[name] = best_fixed.settle(controllers, server, one.config, one.end_s)
    tasks: dict[str, Task] = {}
    key_of: dict[str, tuple[str, str, int]] = {}
    for seed in seeds:
        for name in of:
            chosen = tuple(best["tree"] for best in trees[name])
            specs = dict(zip(controllers, options.policies, strict=True))
            for who in (ORACLE, *controllers):
                label = f"{of[name].title} · {who} · seed {seed}"
                key_of[label] = (name, who, seed)
                tasks[label] = (
                    Task(setting, name, seed, trees=chosen)
                    if who == ORACLE
                    else Task(setting, name, seed, spec=specs[who])
                )
    made = all_made(served, tasks, kept, say, PART)
    runs = {key_of[label]: run for label, run in made.items()}
    rows = rows_of(of, runs)
    summary = summary_of(of, list(controllers), seeds, trees, runs, rows)
    summary |= {
        "world": server.describe(),
        "best_fixed": fixed,
        "quick": options.quick,
        "load": options.load,
        "seconds": time.monotonic() - began_s,
    }
    write_part(options.out, PART, rows, summary, seeds, options.command)
    kept.forget()
    return read_summary(options.out / f"{PART}.json")


def _names(setting: Any) -> list[str]:
    from eval.adaptation_test.disturbances import disturbed

    return list(disturbed(setting.scale, setting.load))


def _to_stderr(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
