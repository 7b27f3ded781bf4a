"""Write a file so that a full disk or a kill leaves the old one or none, never half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from engine.errors import UserError


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write beside `path` (text as UTF-8), then rename; makes missing folders. Raises OSError."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def write_named(path: Path, text: str) -> None:
    """`write_atomic` to where the user said; raises UserError where it cannot be written."""
    try:
        write_atomic(path, text)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror}); name a file in a folder with free space "
            "that you may write to"
        ) from error
