"""Files that grow while a run trains: a line is written whole or not at all, and may be taken back.

A run that was killed goes on from an earlier moment, so what was written after it is cut off.
"""

from __future__ import annotations

import json
import os
from pathlib import Path


def append_whole(path: Path, text: str) -> None:
    """Append `text`, or leave the file as it was and raise OSError."""
    content = text.encode()
    with path.open("ab", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            written = file.write(content)
            if written != len(content):
                # A nearly full disk takes a part; the next write says why.
                file.write(content[written:])
        except OSError:
            os.ftruncate(file.fileno(), size)
            raise


def cut_partial_line(path: Path) -> None:
    """Drop what a killed process left after the last complete line."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


def cut_after(path: Path, step: int) -> None:
    """Drop the last lines, JSON objects of rising "step", whose step is beyond `step`."""
    lines = path.read_bytes().splitlines(keepends=True)
    kept = len(lines)
    while kept and json.loads(lines[kept - 1])["step"] > step:
        kept -= 1
    if kept < len(lines):
        os.truncate(path, sum(map(len, lines[:kept])))
