"""The constants of an analytic controller as a subject of tuning: from declared ranges to calls.

A tuple's places are searched one by one, as `depth[0]` and `depth[1]`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.errors import UserError
from engine.protocol import Controller
from policies import registry
from policies.grammar import first_part, name_of, read_call
from policies.spelling import spelled
from policies.tunable import Tunable, declared
from train.tuning.search_space import Space, Values, rounded


@dataclass
class AnalyticSubject:
    """The controller that `spec` makes, searched in what it declares and `spec` does not state."""

    spec: str
    space: Space
    defaults: dict[str, float]
    rungs: int = 1

    @classmethod
    def of(cls, spec: str, lossy: bool) -> AnalyticSubject:
        """Of a registry name, a call or `module:Class`, wrappers before it passed over.

        `lossy` includes what changes the text. Raises UserError where nothing can be searched.
        """
        try:
            registry.make(spec)  # what is wrong with it is told first, wrappers included
        except UserError as error:
            raise UserError(f"--policy {error}") from error
        if registry.exported_folder(spec) is not None:
            raise UserError(
                f"--policy {spec}: an exported controller has no constants to tune; expected one "
                f"of {', '.join(tunable_names())}, or the learning algorithm ppo"
            )
        _, inner = _parts(spec)
        kind = type(registry.make(inner))
        ranges = declared(kind)
        if not ranges:
            raise UserError(
                f"--policy {spec}: declares no range for any of its parameters; those that do are "
                f"{', '.join(tunable_names())}"
            )
        space, defaults = _flat(kind, ranges, _stated(inner, kind), lossy)
        if not space:
            raise UserError(
                f"--policy {spec}: nothing is left to search; leave out one of "
                f"{', '.join(ranges)}, or for a margin add accuracy to --objectives"
            )
        return cls(spec, space, defaults)

    def spelled(self, values: Values) -> str:
        """The shortest call that makes the controller with those values."""
        wrappers, inner = _parts(self.spec)
        kind = type(registry.make(inner))
        given: dict[str, Any] = _stated(inner, kind)
        places: dict[str, dict[int, float]] = {}
        for key, value in rounded(values).items():
            name, bracket, place = key.partition("[")
            if bracket:
                places.setdefault(name, {})[int(place.rstrip("]"))] = value
            else:
                given[name] = value
        for name, row in places.items():
            given[name] = tuple(row[place] for place in sorted(row))
        ordered = {
            name: given[name] for name in inspect.signature(kind).parameters if name in given
        }
        return wrappers + spelled(read_call(inner).name, kind, **ordered)

    def controllers(self, values: Values, trial: int) -> Iterator[Controller]:
        """The controller with those values."""
        yield registry.make(self.spelled(values))

    def policy(self, values: Values, trial: int) -> str:
        """The call."""
        return self.spelled(values)


def tunable_names() -> list[str]:
    """Registered controllers with something to tune."""
    kinds = {name: registry.class_of(registry.ENTRIES[name]) for name in registry.names()}
    return [name for name, kind in kinds.items() if declared(kind)]


def _flat(
    kind: type[Controller],
    ranges: dict[str, Tunable | tuple[Tunable, ...]],
    stated: dict[str, Any],
    lossy: bool,
) -> tuple[Space, dict[str, float]]:
    """Ranges and defaults by flat name."""
    signature = inspect.signature(kind).parameters
    space: Space = {}
    defaults: dict[str, float] = {}
    for name, found in ranges.items():
        if name in stated:
            continue
        one = isinstance(found, Tunable)
        value = signature[name].default
        for place, tunable in enumerate([found] if isinstance(found, Tunable) else found):
            if lossy or not tunable.lossy:
                key = name if one else f"{name}[{place}]"
                space[key], defaults[key] = tunable, value if one else value[place]
    return space, defaults


def _parts(spec: str) -> tuple[str, str]:
    """The wrappers with their colons, and the controller inside."""
    wrappers, inner = "", spec.strip()
    first, rest = first_part(inner)
    while rest is not None and name_of(first) in registry.WRAPPERS:
        wrappers, inner = f"{wrappers}{first}:", rest
        first, rest = first_part(inner)
    return wrappers, inner


def _stated(inner: str, kind: type[Controller]) -> dict[str, Any]:
    """The arguments that the call gives, by name."""
    call = read_call(inner)
    return dict(inspect.signature(kind).bind_partial(*call.positional, **call.keywords).arguments)
