"""Where profiles lie and how they are written and read: versioned JSON, whole or not at all.

What a profile means is `hardware_profile.py`'s; here it is a dataclass of plain values.
"""

from __future__ import annotations

import json
import math
import re
import types
import typing
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from engine.atomic_write import write_named
from engine.errors import UserError
from engine.profile.identity import Identity
from models.model_cache import cache_root

FORMAT = "draftgym.hardware-profile"
VERSION = 4  # 2 knew neither device nor attention nor page size
# Version 3 had all but these, whose defaults say what it meant.
NEW_IN_4 = frozenset({"origins", "idle_watts", "limit_watts", "device_bytes"})
NEW_SINCE = frozenset({"graphs"})  # likewise, for every version
AGAIN = "measure anew with `python -m engine.profile`"

Value = TypeVar("Value")


def profile_path(identity: Identity) -> Path:
    """The place in the user's cache of a set-up's profile; another set-up's is another."""
    slug = re.sub(r"[^a-z0-9.]+", "-", identity.model.lower()).strip("-")[-40:]
    folder = cache_root() / "profiles" / identity.machine.fingerprint
    return folder / f"{slug}-{identity.drafter}-{identity.digest}.json"


def profile_paths() -> list[Path]:
    """All profiles in the user's cache, of whatever set-up."""
    return sorted((cache_root() / "profiles").glob("*/*.json"))


def write(path: Path, profile: Any) -> None:
    """Write a dataclass; raises UserError when the place cannot be written."""
    raw = {"format": FORMAT, "version": VERSION, **asdict(profile)}
    write_named(path, json.dumps(raw, indent=1, allow_nan=False) + "\n")


def read(path: Path, kind: type[Value]) -> Value:
    """Read what `write` wrote; raises UserError for anything else."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{path}: no hardware profile ({error.strerror}); {AGAIN}, with --out {path}"
        ) from error
    except ValueError as error:
        raise UserError(f"{path} is not a hardware profile ({error}); {AGAIN}") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise UserError(f"{path} is not a hardware profile (format {FORMAT!r} expected); {AGAIN}")
    if raw.get("version") not in (3, VERSION):
        raise UserError(
            f"{path} is a hardware profile of version {raw.get('version')}, expected {VERSION}; "
            f"{AGAIN}"
        )
    values = {name: value for name, value in raw.items() if name not in ("format", "version")}
    try:
        may_lack = NEW_SINCE | (NEW_IN_4 if raw["version"] == 3 else frozenset())
        return _build(kind, values, "profile", may_lack)
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}; {AGAIN}") from error


def _build(kind: Any, raw: Any, where: str, may_lack: frozenset[str]) -> Any:
    """`raw` as a value of type `kind`; raises ValueError naming the place that does not fit."""
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = {field.name for field in fields(kind)}
        if isinstance(raw, dict):
            names -= may_lack - set(raw)
        if not isinstance(raw, dict) or set(raw) != names:
            given = sorted(raw) if isinstance(raw, dict) else type(raw).__name__
            raise ValueError(f"{where} has {given}, expected {sorted(names)}")
        values = {
            name: _build(hints[name], raw[name], f"{where}.{name}", may_lack) for name in names
        }
        return typing.cast(Any, kind)(**values)
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and isinstance(raw, list):
        return tuple(
            _build(inside[0], item, f"{where}[{i}]", may_lack) for i, item in enumerate(raw)
        )
    if origin is dict and isinstance(raw, dict):
        return {
            name: _build(inside[1], item, f"{where}.{name}", may_lack) for name, item in raw.items()
        }
    if origin in (typing.Union, types.UnionType):
        return None if raw is None else _build(inside[0], raw, where, may_lack)
    if kind is float and type(raw) in (int, float) and math.isfinite(raw):
        return float(raw)
    if kind in (int, bool, str) and type(raw) is kind:
        return raw
    raise ValueError(f"{where} is {raw!r}, expected {getattr(kind, '__name__', kind)}")
