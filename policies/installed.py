"""Controllers that other installed packages bring along: entry points of `draftgym.controllers`.

A package that has in its pyproject.toml

    [project.entry-points."draftgym.controllers"]
    my-controller = "my_package.my_module:MyController"

makes `my-controller` a name like any other. Its module is imported when the controller is asked
for. A name that is taken is refused, so that a table never shows one controller under the name of
another.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from engine.errors import UserError

GROUP = "draftgym.controllers"


def installed(taken: Mapping[str, object]) -> dict[str, EntryPoint]:
    """By name, what installed packages offer.

    Raises UserError for a name in `taken`, for one that two packages claim, and for a target that
    is not `module:Class`.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        if point.name in taken:
            raise UserError(
                f"{package_of(point)} offers a controller named {point.name}, which DraftGym has "
                f"itself; its entry point in {GROUP} needs another name"
            )
        if (other := found.get(point.name)) is not None:
            raise UserError(
                f"{package_of(other)} and {package_of(point)} both offer a controller named "
                f"{point.name}; one of the entry points in {GROUP} needs another name"
            )
        if not point.module or not point.attr:
            raise UserError(
                f"{package_of(point)} offers the controller {point.name} as {point.value!r}; "
                "expected module:Class"
            )
        found[point.name] = point
    return found


def package_of(point: EntryPoint) -> str:
    """Name and version of the package that offers it, for people."""
    return "a package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
