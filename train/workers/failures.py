"""What is kept of workers that died: why, with the traceback of the worker, in a file of the run.

It is the user's own file: unlike crash.txt nobody is asked to send it, so messages stand in it.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from train.appended_file import append_whole

FILE = "failures.txt"
NEWEST_FIRST = "most recent call first"
FRAME = re.compile(r'File "(.+?)", line (\d+),? in (\S+)')
SHOWN = 4
ROOT = Path(__file__).resolve().parents[2]


class Died(Exception):
    """A worker is gone."""

    def __init__(self, reason: str, trace: str = "") -> None:
        """`reason` goes on after "it", as in "it was ended by SIGKILL"."""
        super().__init__(reason)
        self.reason, self.trace = reason, trace

    @property
    def sentence(self) -> str:
        """Why, and the last frames of the worker where it left any."""
        where = frames(self.trace)
        return f"{self.reason} (in {' > '.join(where)})" if where else self.reason


class Failures:
    """The file, and how many there were."""

    def __init__(self, folder: Path) -> None:
        self.path, self.count = folder / FILE, 0

    def add(self, who: str, death: Died) -> None:
        """Append one."""
        self.count += 1
        self.path.parent.mkdir(parents=True, exist_ok=True)
        trace = death.trace.rstrip() or "it left no traceback"
        append_whole(self.path, f"== {datetime.now():%F %T}  {who} {death.reason}\n{trace}\n\n")


def frames(trace: str, most: int = SHOWN) -> list[str]:
    """The innermost frames of a traceback or of faulthandler's, outermost first, as FILE:LINE."""
    found = [f"{_short(path)}:{line}" for path, line, _ in FRAME.findall(trace)]
    if NEWEST_FIRST in trace:
        found.reverse()
    return found[-most:]


def _short(path: str) -> str:
    """From the repository's root where it is in there, else the last two parts."""
    whole = Path(path)
    if whole.is_relative_to(ROOT):
        return str(whole.relative_to(ROOT))
    return "/".join(whole.parts[-2:])
