"""One name for a folder out of whatever a controller or a workload is called."""

from __future__ import annotations

import re


def slug(name: str) -> str:
    """`name` as a single part of a path: letters, digits, dots and hyphens, never a dot at an end.

    `unnamed` where nothing of it is left.
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "unnamed"
