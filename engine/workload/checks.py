"""What the values of a workload must be, each told in one sentence when it is not.

Knows numbers, ranges and names; what they mean stands with the dataclass that holds them.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from engine.errors import UserError


def nearest(name: str, known: Iterable[str]) -> str:
    """ "nearest is 'a' of a, b, c": the tail of a sentence about an unknown name."""
    names = sorted(known)
    if not names:
        return "none is known"

    def likeness(other: str) -> tuple[bool, float]:
        return other.startswith(name), difflib.SequenceMatcher(None, name, other).ratio()

    return f"nearest is {max(names, key=likeness)!r} of {', '.join(names)}"


def is_number(value: object) -> bool:
    """A real number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def need_positive(label: str, value: Any, endless: bool = False) -> None:
    """Raise UserError unless `value` is a number above 0; inf only where it may be endless."""
    if not is_number(value) or not value > 0 or (value == math.inf and not endless):
        raise UserError(f"{label} is {value!r}; expected a positive number")


def need_within(label: str, value: Any, low: float, high: float) -> None:
    """Raise UserError unless `value` is a number from low to high, both included."""
    if not is_number(value) or not low <= value <= high:
        raise UserError(f"{label} is {value!r}; expected a number from {low:g} to {high:g}")


def checked_range(label: str, value: Any, low: float, high: float) -> tuple[float, float]:
    """`value` as (low, high), both inside the given bounds; one number stands for both ends."""
    if is_number(value):
        value = (value, value)
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise UserError(f"{label} is {value!r}; expected two numbers, low and high")
    for bound in value:
        need_within(label, bound, low, high)
    if value[0] > value[1]:
        raise UserError(f"{label} is {value!r}; expected low and then high")
    return float(value[0]), float(value[1])


def checked_mix(label: str, mix: object) -> dict[str, float]:
    """A copy of `mix`; a class may have weight 0, but not all of them."""
    if not isinstance(mix, Mapping):
        raise UserError(f"{label} is {mix!r}; expected weights by class name")
    for name, weight in mix.items():
        if not isinstance(name, str) or not is_number(weight) or not 0 <= weight < math.inf:
            raise UserError(
                f"{label} gives {name!r} the weight {weight!r}; expected a number from 0"
            )
    if mix and not 0 < math.fsum(mix.values()) < math.inf:
        raise UserError(f"{label} is {dict(mix)!r}; expected at least one positive weight")
    return dict(mix)
