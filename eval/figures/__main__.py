"""`python -m eval.figures PAPER`: a paper's figures, what was measured here beside its values."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.errors import UserError


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m eval.figures",
        description="Draw a paper's figures from what the benchmarks measured, beside the values "
        "that the paper published. A figure that was not measured says so in its panel.",
    )
    made.add_argument("paper", choices=("adaserve", "adaptivespec", "learning-to-draft"))
    made.add_argument("--results", type=Path, help="folder of results; none: benchmarks/results")
    made.add_argument("--out", type=Path, help="folder; none: runs/figures-PAPER")
    made.add_argument("--page-only", action="store_true", help="no SVG and PNG of each panel")
    return made


def main(argv: Sequence[str]) -> int:
    """Draw and say where; 0, or 2 for bad input."""
    options = parser().parse_args(argv)
    from eval.figures.course import write_figures
    from eval.figures.measured import RESULTS, read_measured

    out: Path = options.out or Path("runs") / f"figures-{options.paper}"
    try:
        found = read_measured(options.results or RESULTS)
        paths = write_figures(options.paper, found, out, not options.page_only)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(f"figures     {paths[0]}")
    if len(paths) > 1:
        print(f"pictures    {len(paths) - 1} in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
