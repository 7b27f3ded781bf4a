"""The command `python -m eval.frontier`: options and what is shown; `whole` does the work."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from eval.frontier.whole import (
    LOADS,
    OUT,
    OVERLOADS,
    PART,
    POLICIES,
    QUICK_SECONDS,
    QUICK_SEEDS,
    SECONDS,
    SEEDS,
    Options,
    swept,
)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m eval.frontier",
        description="Sweep demand past what can be served, under each overload policy, and say "
        "what becomes of each class. A run that was cut goes on when the same is typed again.",
    )
    add = made.add_argument
    add("--policy", nargs="+", default=list(POLICIES), metavar="NAME", help="controllers, systems "
        "or run folders; the first one's audit is shown (%(default)s)")  # fmt: skip
    add("--overload", nargs="+", default=list(OVERLOADS), help="policies (%(default)s)")
    add("--loads", nargs="+", type=float, default=list(LOADS), help="× capacity (%(default)s)")
    add("--seeds", type=int, help=f"of the arrivals ({SEEDS}, with --quick {QUICK_SEEDS})")
    add("--seconds", type=float,
        help=f"of a run ({SECONDS:g}, with --quick {QUICK_SECONDS:g})")  # fmt: skip
    add("--quick", action="store_true", help="shorter runs, fewer seeds; nothing is left out")
    add("--profile", help="hardware profile, a published one by name or a file "
        "(adaserve-qwen-32b-a100)")  # fmt: skip
    add("--recording", type=Path, help="folder; none: the one that ships with DraftGym")
    add("--out", type=Path, default=OUT, help="results folder (%(default)s)")
    return made


def main(argv: Sequence[str]) -> int:
    """Run, write and show; 0 done, 2 for bad input, 130 when stopped."""
    given = parser().parse_args(argv)
    from eval.frontier.telling import show
    from eval.part_command import carried_out
    from eval.parts import typed

    usual = (QUICK_SEEDS, QUICK_SECONDS) if given.quick else (SEEDS, SECONDS)
    options = Options(
        policies=tuple(given.policy),
        overloads=tuple(given.overload),
        loads=tuple(given.loads),
        seeds=usual[0] if given.seeds is None else given.seeds,
        seconds=usual[1] if given.seconds is None else given.seconds,
        profile=given.profile,
        recording=given.recording,
        out=given.out,
        command=typed("-m eval.frontier", argv),
    )
    return carried_out(PART, options.out, partial(swept, options), show, 176)
