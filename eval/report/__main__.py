"""`python -m eval.report FOLDER`: report.html from the results that lie in a folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.errors import UserError


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m eval.report",
        description="Write FOLDER/report.html from what lies there: results.json of a comparison, "
        "and the parts matrix, adaptation, frontier, lossless and fidelity, those that were run. "
        "One file, which opens offline.",
    )
    made.add_argument("folder", type=Path, metavar="FOLDER", help="what --out named")
    return made


def main(argv: Sequence[str]) -> int:
    """Write and say where; 0, or 2 for bad input."""
    options = parser().parse_args(argv)
    from eval.report.writing import write_report

    try:
        path = write_report(options.folder)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(f"report      {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
