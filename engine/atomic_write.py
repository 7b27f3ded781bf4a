"""Write a file so that a full disk or a kill leaves the old one or none, never half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from engine.errors import UserError


def write_atomically(path: Path, text: str) -> None:
    """Write UTF-8 `text` beside `path`, then rename; missing folders are made.

    Raises UserError when the place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror}); name a file in a folder with free space "
            "that you may write to"
        ) from error
