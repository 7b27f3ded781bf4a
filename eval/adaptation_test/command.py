"""The command `python -m eval.adaptation_test`: options and output; `whole` does the work."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from eval.adaptation_test.whole import OUT, PART, POLICIES, QUICK_SEEDS, SEEDS, Options, tested


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
    add("--scale", type=float, default=1.0, help="factor on all times (%(default)s)")
    add("--out", type=Path, default=OUT, help="results folder (%(default)s)")
    return made


def main(argv: Sequence[str]) -> int:
    """Run, write and show; 0 done, 2 for bad input, 130 when stopped."""
    given = parser().parse_args(argv)
    from eval.adaptation_test.telling import show
    from eval.part_command import carried_out
    from eval.parts import typed

    quick_seeds = QUICK_SEEDS if given.quick else SEEDS
    options = Options(
        policies=tuple(given.policy),
        seeds=quick_seeds if given.seeds is None else given.seeds,
        quick=given.quick,
        profile=given.profile,
        recording=given.recording,
        load=given.load,
        scale=given.scale,
        out=given.out,
        command=typed("-m eval.adaptation_test", argv),
    )
    return carried_out(PART, options.out, partial(tested, options), show, 140)
