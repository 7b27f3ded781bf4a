"""`python -m engine.replay.capacity`: how fast fixed trees drain a recording by a profile.

Also writes the file that ships beside the default profile (`--out`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.errors import UserError

SHOWN_TREES = 3


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m engine.replay.capacity",
        description="Sweep fixed trees on replay: the fastest to drain a class is its capacity.",
    )
    add = made.add_argument
    add("--recording", type=Path, help="folder; none: the one that ships with DraftGym")
    add("--profile", help="file or a published profile's name; none: the shipped one")
    add("--slots", type=int, default=16, help="requests at a time (%(default)s)")
    add("--out", type=Path, help="where the table goes as JSON; none: nowhere")
    return made


def main(argv: Sequence[str]) -> int:
    """Sweep and print; 0, or 2 for bad input."""
    options = parser().parse_args(argv)
    try:
        run(options)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def run(options: argparse.Namespace) -> None:
    """Sweep anew, whatever is cached, and print. Raises UserError."""
    from engine.replay.capacity_store import key_of, write
    from engine.replay.capacity_sweep import sweep
    from engine.replay.drawing import RecordedDrawing
    from engine.replay.server import ReplayConfig, ReplayServer
    from engine.workload import workload

    server = ReplayServer.load(
        ReplayConfig(recording=options.recording, profile=options.profile, slots=options.slots)
    )
    table = sweep(server)
    print(f"{server.describe()} · {options.slots} slots")
    print(f"{'mix':<16}{'requests/s':>10}  fastest trees, in shares of the best")
    asked = RecordedDrawing(server, workload("steady")).asked
    for name, mix in [*((part.name, [part]) for part in asked), ("all alike", asked)]:
        seconds = table.request_s(mix)
        order = seconds.argsort(kind="stable")[:SHOWN_TREES].tolist()
        trees = ", ".join(f"{table.trees[i].spec} {seconds.min() / seconds[i]:.2f}" for i in order)
        print(f"{name:<16}{table.rps(mix):>10.3f}  {trees}")
    if options.out is not None:
        try:
            write(options.out, table, key_of(server))
        except OSError as error:
            raise UserError(
                f"{options.out} cannot be written ({error.strerror}); name a file in a folder "
                "with free space that you may write to"
            ) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
