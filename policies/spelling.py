"""A controller's name as it can be typed again: what differs from its defaults stands in brackets.

`registry.make` reads such names, so a line of a table is also the command that makes it.
"""

from __future__ import annotations

import inspect
from typing import Any


def spelled(name: str, kind: type, **given: Any) -> str:
    """`name`, or `name(width=2, …)` with those of `given` that are not `kind`'s defaults."""
    defaults = inspect.signature(kind).parameters
    changed = [f"{key}={value!r}" for key, value in given.items() if value != defaults[key].default]
    return f"{name}({', '.join(changed)})" if changed else name
