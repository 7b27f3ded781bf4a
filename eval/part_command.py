"""What commands that write a part have in common: run, show, say where it is and what is next."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

Summary = Mapping[str, Any]
Say = Callable[[str], None]


def carried_out(
    part: str,
    out: Path,
    make: Callable[[Say], Summary],
    show: Callable[[Summary, Console], None],
    width: int,
) -> int:
    """`make` the part, which says how far it is on stderr, and `show` its summary.

    `width` is that of a pipe. Returns the exit code: 0 done, 2 bad input, 130 stopped.
    """
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=width)
    try:
        show(make(_to_stderr), console)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = f"what is done is kept in {out}, and the same command goes on"
        print(f"stopped; {kept}", file=sys.stderr)
        return 130
    print(f"results     {out}/{part}.json, {part}.parquet")
    print(f"next        python -m eval.report {out}")
    return 0


def _to_stderr(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
