"""A snapshot as a file, and back: arrays in an npz, the rest as JSON beside them. No pickle.

Written whole or not at all. A file of another version is refused; whether a snapshot belongs to
what is to restore it, `engine.snapshot_values.check_origin` says.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from engine.atomic_write import write_atomic
from engine.errors import UserError
from engine.snapshot_origin import Data, Snapshot

FORMAT, VERSION = "draftgym.snapshot", 1
TREE = "tree"
"""The member that holds the JSON; arrays are called by their number."""


def save(snapshot: Snapshot, path: Path) -> None:
    """Write the snapshot; raises UserError where it cannot be written."""
    arrays: list[np.ndarray] = []
    tree = {"format": FORMAT, "version": VERSION, "kind": snapshot.kind}
    tree |= {"made_on": snapshot.made_on, "state": _to_json(snapshot.state, arrays)}
    text = np.frombuffer(json.dumps(tree, allow_nan=False).encode(), np.uint8)
    buffer = io.BytesIO()
    members: dict[str, Any] = {str(number): array for number, array in enumerate(arrays)}
    members[TREE] = text
    np.savez_compressed(buffer, **members)
    try:
        write_atomic(path, buffer.getvalue())
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror}); name a file in a folder with free space "
            "that you may write to"
        ) from error


def load(path: Path) -> Snapshot:
    """Read what `save` wrote; raises UserError for anything else."""
    try:
        with np.load(path, allow_pickle=False) as members:
            tree = json.loads(bytes(members[TREE]))
            if tree["format"] != FORMAT:
                raise ValueError(f"its format is {tree['format']!r}")
            version = tree["version"]
            state = _from_json(tree["state"], members) if version == VERSION else None
            snapshot = Snapshot(tree["kind"], tree["made_on"], state)
    except OSError as error:
        raise UserError(f"{path}: no snapshot can be read ({error}); name another file") from error
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} is no snapshot of DraftGym, or a damaged one ({error}); name another file"
        ) from error
    if version != VERSION:
        raise UserError(
            f"{path} is a snapshot of version {version}, expected {VERSION}; restore it with the "
            "version of DraftGym that wrote it, or take it anew"
        )
    return snapshot


def _to_json(data: Data, arrays: list[np.ndarray]) -> Data:
    """The data with arrays by number and infinite numbers in words, which JSON does not know."""
    if isinstance(data, np.ndarray):
        arrays.append(data)
        return {"array": len(arrays) - 1}
    if isinstance(data, list):
        return [_to_json(item, arrays) for item in data]
    if isinstance(data, dict):
        return {name: _to_json(item, arrays) for name, item in data.items()}
    if isinstance(data, float) and not math.isfinite(data):
        return {"float": repr(data)}
    return data


def _from_json(data: Data, members: Any) -> Data:
    if isinstance(data, list):
        return [_from_json(item, members) for item in data]
    if not isinstance(data, dict):
        return data
    if "array" in data:
        return members[str(data["array"])]
    if "float" in data:
        return float(data["float"])
    return {name: _from_json(item, members) for name, item in data.items()}
