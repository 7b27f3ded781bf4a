"""The command of synthetic acceptance: list pairs, draw a recording, check, fit anew.

Light on imports: numba, scipy and rich come in when there is something to do.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.atomic_write import write_named
from engine.errors import UserError

if TYPE_CHECKING:
    from engine.replay.synthetic.check import Check

SHOWN = ("calibrated", "fitted", "miscalibrated")


def main(argv: Sequence[str]) -> int:
    """Exit code 0, 1 when a bar is missed, 2 with one sentence on stderr."""
    options = parser().parse_args(argv)
    try:
        if options.fit is not None:
            return fit(options.fit)
        if options.check:
            return check(options.quick, options.json, options.picture)
        if options.write is not None:
            return write(options)
        return list_pairs()
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m engine.replay.synthetic",
        description="Recordings of model pairs that cannot be run here, by published acceptance. "
        "Without an option: list the pairs.",
    )
    add = made.add_argument
    add("--check", action="store_true", help="is it calibrated, and does it match what is known?")
    add("--quick", action="store_true", help="with --check: shorter texts, one pair held out")
    add("--json", type=Path, help="with --check: write the table there as well")
    add("--picture", type=Path, help="with --check: write an SVG")
    add("--write", type=Path, metavar="FOLDER", help="draw a recording for replay")
    add("--pair", default="adaserve-llama-70b", help="with --write (%(default)s)")
    add("--shown", choices=SHOWN, default="calibrated", help="draft probabilities (%(default)s)")
    add("--ece", type=float, default=0.065, help="of miscalibrated drafts (%(default)s)")
    add("--texts-per-class", type=int, default=32, help="(%(default)s)")
    add("--tokens", type=int, default=256, help="output tokens of a text (%(default)s)")
    add("--prompt-tokens", type=int, default=128, help="(%(default)s)")
    add("--seed", type=int, default=0, help="(%(default)s)")
    add("--fit", type=Path, metavar="TABLE", help="fit SpecForge's table and write pairs.toml")
    return made


def list_pairs() -> int:
    """Name the pairs."""
    from engine.replay.synthetic.pairs import load_pairs

    for pair in load_pairs().values():
        print(f"{pair.name}\n    {', '.join(pair.classes)}; {pair.source}")
    return 0


def write(options: argparse.Namespace) -> int:
    """Draw a recording and write it as one shard."""
    from engine.replay.recording_folder import mark_done, mark_unfinished, take_up, write_shard
    from engine.replay.synthetic.generator import SyntheticConfig, draw_recording
    from engine.replay.synthetic.pairs import find_pair

    if options.seed < 0:
        raise UserError(f"--seed {options.seed}: expected a number from 0")
    pair = find_pair(options.pair)
    config = SyntheticConfig(
        texts_per_class=options.texts_per_class,
        tokens=options.tokens,
        prompt_tokens=options.prompt_tokens,
        shown=options.shown,
        ece=options.ece,
    )
    manifest, recording = draw_recording(pair, config, np.random.default_rng(options.seed))
    recipe = {"synthetic": pair.name, "seed": options.seed, **asdict(config)}
    take_up(options.write, manifest, recipe)
    mark_unfinished(options.write)
    write_shard(options.write, recording, 0)
    mark_done(options.write)
    print(f"{options.write}: {recording.texts} texts, {recording.places} places, {pair.name}")
    return 0


def check(quick: bool, json_file: Path | None, picture: Path | None) -> int:
    """Print the table; 1 when a bar is missed."""
    from engine.replay.synthetic.check import EAGLE, check
    from engine.replay.synthetic.pairs import load_pairs
    from engine.replay.synthetic.picture import draw

    found = check(load_pairs(), quick, lambda what: print(f"… {what}", file=sys.stderr))
    show(found)
    if json_file is not None:
        rows = [figure._asdict() for figure in found.figures]
        write_named(json_file, json.dumps(rows, indent=1) + "\n")
    if picture is not None:
        mine = {name.split()[1]: c for name, c in found.curves.items() if name.startswith(EAGLE)}
        write_named(picture, draw(mine, found.held_out))
    return int(any(figure.holds is False for figure in found.figures))


def show(found: Check) -> None:
    """figure | value | bar | holds."""
    words = {True: "yes", False: "NO", None: ""}
    rows = [("figure", "value", "bar", "holds")]
    rows += [(f.name, f.value, f.bar, words[f.holds]) for f in found.figures]
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(size) for cell, size in zip(row, sizes, strict=True)]
        print(" | ".join(cells).rstrip())


def fit(table: Path) -> int:
    """Write the pairs that ship with DraftGym."""
    from engine.replay.synthetic.pairs import PAIRS_FILE, as_toml
    from engine.replay.synthetic.table import HEADING, fitted_pairs

    pairs = fitted_pairs(table)
    write_named(PAIRS_FILE, as_toml(pairs, HEADING))
    print(f"{PAIRS_FILE}: {len(pairs)} pairs")
    return 0
