"""`python -m engine.profile.published`: the shipped profiles, their test, and their making."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import UserError

if TYPE_CHECKING:
    from engine.profile.published.check import Line

ROOT = Path(__file__).resolve().parents[3]


def main(argv: Sequence[str]) -> int:
    """List, check or build; exit code 0, or 2 with one sentence on stderr."""
    made = argparse.ArgumentParser(
        prog="python -m engine.profile.published",
        description="Hardware profiles of published figures: list them (default), predict with "
        "them what others measured, or make them anew from the public tables.",
    )
    made.add_argument("--check", action="store_true", help="measured against predicted")
    made.add_argument("--build", type=Path, metavar="FOLDER", help="write all profiles there")
    named = os.environ.get("DRAFTGYM_SHARED")
    default = Path(named) if named else ROOT.parent / "shared" / "data"
    made.add_argument("--data", type=Path, default=default, help="public tables (%(default)s)")
    options = made.parse_args(argv)
    try:
        if options.build is not None:
            build(options.data, options.build)
        elif options.check:
            check(options.data)
        else:
            list_all()
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def list_all() -> None:
    """One row a profile."""
    from rich.console import Console

    from engine.profile.published.listing import print_list
    from engine.profile.published.load import names, open_profile

    console = Console(highlight=False, width=180)
    print_list({name: open_profile(name) for name in names()}, console)


def show(name: str) -> None:
    """All of one profile; raises UserError for an unknown name."""
    from rich.console import Console

    from engine.profile.published.listing import print_one
    from engine.profile.published.load import open_profile

    print_one(name, open_profile(name), Console(highlight=False, soft_wrap=True))


def build(data: Path, folder: Path) -> None:
    """Write every profile of the tables under `data` to `folder`."""
    from engine.profile.published.build import build_all

    for name, profile in build_all(data).items():
        print(profile.save(folder / f"{name}.json"))


def check(data: Path) -> None:
    """Print each figure that others measured beside what the profiles predict for it."""
    from engine.profile.published import check as checks

    _print("vLLM runs of LLMServingSim, simulated", checks.queue_runs(data))
    _print("decoding at a steady batch, from the profile alone", checks.steady_decoding(data))
    _print("the roofline of the H200 profiles, on an H100", checks.roofline(data))
    print("power, on what it was not fitted on")
    for errors in checks.power(data):
        print(f"  {errors}")


def _print(title: str, lines: Iterable[Line]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in (title, "measured", "predicted", "error"):
        table.add_column(heading, justify="left" if heading == title else "right")
    for line in lines:
        figures = f"{line.measured:.1f} {line.unit}", f"{line.predicted:.1f} {line.unit}"
        table.add_row(line.what, *figures, f"{line.error:+.1%}")
    console = Console(highlight=False, width=120)
    console.print(table)
    console.print()
