"""The user's cache of built models: a folder appears there whole or not at all.

Whoever builds works in a folder beside the final one, under a lock, and renames at the end. What
is built is the caller's business (models/registry.py).
"""

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.fetch_progress import say

SOURCE_FILE = "SOURCE.json"
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


def cache_root() -> Path:
    """DraftGym's cache folder: $DRAFTGYM_CACHE, else the platform's cache."""
    if chosen := os.environ.get("DRAFTGYM_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "draftgym"


def read_origin(folder: Path) -> dict[str, Any] | None:
    """What SOURCE.json in `folder` says, or None where there is none that can be read."""
    try:
        origin = json.loads((folder / SOURCE_FILE).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return origin if isinstance(origin, dict) else None


def is_complete(folder: Path, origin: dict[str, Any]) -> bool:
    """Whether `folder` was built from `origin` and every file still has its recorded size."""
    found = read_origin(folder)
    if found is None or any(found.get(key) != value for key, value in origin.items()):
        return False
    sizes = found.get("file_bytes", {})
    return bool(sizes) and all(
        (folder / name).is_file() and (folder / name).stat().st_size == size
        for name, size in sizes.items()
    )


def build_once(folder: Path, origin: dict[str, Any], build: Callable[[Path], None]) -> Path:
    """Return `folder`, built by `build(staging_folder)` unless it already stands complete.

    Two processes that start at once build once: the second waits for the first. Raises UserError
    when the disk is full or the cache cannot be written; whatever `build` raises passes through.
    In every case nothing half-written remains.
    """
    if is_complete(folder, origin):
        return folder
    # deferred: only the first fetch needs it, every start of a command imports this file
    from filelock import FileLock, Timeout

    staging = folder.parent / f".{folder.name}.partial"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.parent / f".{folder.name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say(f"Another process is preparing {folder.name}; waiting for it.")
            lock.acquire()
        try:
            if not is_complete(folder, origin):
                # a leftover can only be from a process that was killed: the lock is ours
                shutil.rmtree(staging, ignore_errors=True)
                staging.mkdir()
                build(staging)
                _write_origin(staging, origin)
                _put_in_place(staging, folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            lock.release()
    except OSError as error:
        if error.errno in FULL_DISK:
            raise UserError(
                f"The disk is full: {folder.name} could not be written to {folder.parent}; free "
                f"about 0.5 GB there or set DRAFTGYM_CACHE to a folder on another disk."
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise UserError(
                f"The cache folder {folder.parent} cannot be written ({error.strerror}); set "
                f"DRAFTGYM_CACHE to a folder that can."
            ) from error
        raise
    return folder


def _write_origin(staging: Path, origin: dict[str, Any]) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(staging.iterdir())}
    text = json.dumps({**origin, "file_bytes": sizes}, indent=2) + "\n"
    (staging / SOURCE_FILE).write_text(text, "utf-8")


def _put_in_place(staging: Path, folder: Path) -> None:
    """Rename `staging` to `folder`; an outdated folder steps aside first, then goes."""
    outdated = folder.parent / f".{folder.name}.outdated"
    shutil.rmtree(outdated, ignore_errors=True)
    if folder.exists():
        os.replace(folder, outdated)
    os.replace(staging, folder)
    shutil.rmtree(outdated, ignore_errors=True)
