"""Where a recording lies: a folder with a manifest and shards of arrays.

`manifest.json` says what was recorded, `recipe.json` from which texts, each `shard-0000.npz` holds
some whole texts. While shards are missing the folder is marked unfinished, and a recorder that was
stopped makes those that are missing. Texts are known by their number, so nothing is read where one
is lost: shards are numbered from 0 without a gap, and together they hold as many texts as the
recipe asks for (`texts_per_class`; a folder whose recipe does not say has no known end). Nothing
here is a pickle.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from engine.atomic_write import write_atomic
from engine.errors import UserError
from engine.replay.packing import pack, unpack
from engine.replay.recording import Manifest, Recording, contradiction, join

FORMAT = "draftgym.recording"
VERSION = 2
AGAIN = "record anew with `python record.py`"
MAKE_AGAIN = "repeat the `python record.py` that made it, which makes the missing ones"
# What zipfile, zlib, NumPy and `unpack` raise for bytes that are not what was written.
DAMAGE = (
    *(OSError, EOFError, BadZipFile, zlib.error, struct.error, RuntimeError),
    *(TypeError, ValueError, LookupError, AttributeError),
)
MANIFEST, RECIPE, UNFINISHED = "manifest.json", "recipe.json", "unfinished.txt"
# By annotation of `Manifest`: whether a value from its JSON is one.
IS_RIGHT: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int": lambda value: type(value) is int and value > 0,
    "tuple[str, ...]": lambda value: (
        isinstance(value, list) and value != [] and all(isinstance(v, str) for v in value)
    ),
}


def take_up(folder: Path, manifest: Manifest, recipe: Mapping[str, Any]) -> None:
    """Begin a recording in `folder`, or go on with the same one.

    Raises UserError where there is something else, or where it cannot be written.
    """
    wanted = _as_json(recipe)
    if (folder / MANIFEST).is_file():
        found, path = read_manifest(folder), folder / RECIPE
        before = path.read_text(encoding="utf-8") if path.is_file() else "{}"
        changed = _differences(
            {**asdict(found), **json.loads(before)}, {**asdict(manifest), **json.loads(wanted)}
        )
        if changed:
            raise UserError(
                f"{folder} holds another recording ({'; '.join(changed)}); name a new folder, or "
                "give the options that it was begun with"
            )
        return
    if folder.exists() and (not folder.is_dir() or any(p.name != RECIPE for p in folder.iterdir())):
        raise UserError(f"{folder}: there is something else already; name a new folder")
    _write(folder / RECIPE, wanted.encode())
    write_manifest(folder, manifest)  # last: with it the folder is a recording


def mark_unfinished(folder: Path) -> None:
    """Some shard is missing. Raises UserError where this cannot be written."""
    _write(folder / UNFINISHED, b"Shards are missing: repeat the command that began this.\n")


def mark_done(folder: Path) -> None:
    """No shard is missing."""
    (folder / UNFINISHED).unlink(missing_ok=True)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Make `folder` a recording's. Raises UserError where it cannot be written."""
    raw = {"format": FORMAT, "version": VERSION, **asdict(manifest)}
    _write(folder / MANIFEST, _as_json(raw).encode())


def read_manifest(folder: Path) -> Manifest:
    """Raises UserError when `folder` holds no recording that this version can read."""
    path = folder / MANIFEST
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{folder} holds no recording ({error.strerror}); {AGAIN}") from error
    except ValueError as error:
        raise UserError(f"{path} is not a recording's manifest ({error}); {AGAIN}") from error
    if not isinstance(raw, dict) or raw.pop("format", None) != FORMAT:
        raise UserError(f"{path} is not a recording's manifest; {AGAIN}")
    if (version := raw.pop("version", None)) != VERSION:
        raise UserError(f"{folder} is of recording version {version}, not {VERSION}; {AGAIN}")
    expected = {field.name for field in fields(Manifest)}
    if set(raw) != expected:
        raise UserError(f"{path} has {sorted(raw)}, expected {sorted(expected)}; {AGAIN}")
    for field in fields(Manifest):
        value, is_right = raw[field.name], IS_RIGHT[str(field.type)]
        if not is_right(value):
            raise UserError(
                f"{path}: {field.name} is {json.dumps(value)}, expected {field.type}; {AGAIN}"
            )
    return Manifest(**{**raw, "classes": tuple(raw["classes"])})


def shards(folder: Path) -> list[Path]:
    """The shards in `folder`, in order."""
    return sorted(folder.glob("shard-*.npz"))


def shard_path(folder: Path, index: int) -> Path:
    """Where shard `index` lies."""
    return folder / f"shard-{index:04d}.npz"


def write_shard(folder: Path, recording: Recording, index: int) -> Path:
    """Write some texts, whole or not at all, as shard `index`; returns where.

    The same texts give the same bytes. Probabilities are rounded (`engine.replay.packing`).
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **pack(recording))
    path = shard_path(folder, index)
    _write(path, buffer.getvalue())
    return path


def load(folder: Path) -> tuple[Manifest, Recording]:
    """Everything in `folder`. Raises UserError for what is missing, damaged or another version."""
    manifest, found = read_manifest(folder), shards(folder)
    if not found or (folder / UNFINISHED).is_file():
        raise UserError(
            f"{folder} is not finished; repeat the `python record.py` that began it, which goes on "
            "where it was stopped"
        )
    for index, path in enumerate(found):
        if path != (expected := shard_path(folder, index)):
            raise UserError(
                f"{folder} lacks {expected.name}, though {path.name} is there; {MAKE_AGAIN}"
            )
    recording = join([_read_shard(path) for path in found])
    wanted = _texts_wanted(folder, manifest)
    if wanted is not None and recording.texts != wanted:
        raise UserError(
            f"{folder} holds {recording.texts} texts in {len(found)} shards, but its {RECIPE} asks "
            f"for {wanted}; {MAKE_AGAIN}"
        )
    return manifest, recording


def _texts_wanted(folder: Path, manifest: Manifest) -> int | None:
    """How many texts the recipe asks for; None where it does not say."""
    path = folder / RECIPE
    if not path.is_file():
        return None
    try:
        recipe = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}); {AGAIN}") from error
    each = recipe.get("texts_per_class") if isinstance(recipe, dict) else None
    return each * len(manifest.classes) if type(each) is int else None


def _read_shard(path: Path) -> Recording:
    try:
        with np.load(path, allow_pickle=False) as stored:
            recording = unpack({name: stored[name] for name in stored.files})
        wrong = contradiction(recording)
    except DAMAGE as error:
        raise UserError(f"{path} is damaged ({error}); delete it, then {AGAIN}") from error
    if wrong:
        raise UserError(f"{path} is damaged: {wrong}; delete it, then {AGAIN}")
    return recording


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """In what a recording that is there differs from the one that is wanted, in words."""
    return [
        f"{name} {before.get(name)}, now {after.get(name)}"
        for name in after
        if json.dumps(before.get(name)) != json.dumps(after[name])
    ]


def _as_json(raw: Mapping[str, Any]) -> str:
    return json.dumps(raw, indent=1) + "\n"


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomic(path, data)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror}); name a folder with free space"
        ) from error
