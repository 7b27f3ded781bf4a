"""A snapshot, and what it belongs to: only there does it mean anything.

What is in it is `engine.snapshot_values`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from engine.errors import UserError
from engine.settings import EngineSettings

DIGITS = 16
Data = Any
"""None | bool | int | float | str | ndarray | list[Data] | dict[str, Data]"""


class Snapshot(NamedTuple):
    """What something was made of at a moment; plain data, which nothing changes later."""

    kind: str
    """The class of what it was taken of."""
    made_on: dict[str, str]
    """By name, what must be the same where it is restored: sizes in words, contents as digests."""
    state: Data


def check_origin(snapshot: Snapshot, kind: str, made_on: Mapping[str, str]) -> None:
    """Raise UserError for a snapshot of another kind of thing, or taken on something else."""
    if snapshot.kind != kind:
        raise UserError(
            f"the snapshot is of a {snapshot.kind}, and a {kind} was asked to restore it; restore "
            f"it with a {snapshot.kind}"
        )
    for name in sorted({*snapshot.made_on, *made_on}):
        then, now = snapshot.made_on.get(name, "none"), made_on.get(name, "none")
        if then != now:
            raise UserError(
                f"the snapshot was taken with another {name}: {then}, where this {kind} has {now}; "
                "restore it with the same"
            )


def digest(arrays: Iterable[np.ndarray]) -> str:
    """What tells arrays from others of other shapes, types or contents."""
    hashed = sha256()
    for array in arrays:
        hashed.update(f"{array.shape} {array.dtype}".encode())
        hashed.update(np.ascontiguousarray(array).data)
    return hashed.hexdigest()[:DIGITS]


def digest_of(value: object) -> str:
    """Likewise of what its representation tells in full, as a frozen dataclass's does."""
    return sha256(repr(value).encode()).hexdigest()[:DIGITS]


def in_words(settings: EngineSettings, decision_s: float) -> dict[str, str]:
    """Settings by name, for `Snapshot.made_on`."""
    words = {field.name: repr(getattr(settings, field.name)) for field in fields(settings)}
    return words | {"decision_s": repr(decision_s)}
