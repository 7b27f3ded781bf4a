"""The profile in the user's cache that fits a set-up, or why there is none and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from engine.errors import UserError
from engine.profile import store
from engine.profile.hardware_profile import HardwareProfile
from engine.profile.identity import Identity


class Lookup(NamedTuple):
    """What was found. `missing` is a clause that says why there is none, "" where there is one."""

    profile: HardwareProfile | None
    missing: str


def look_up(here: Identity) -> Lookup:
    """The cached profile of the set-up `here`. A file that cannot be read counts as none."""
    path = store.profile_path(here)
    if path.is_file():
        try:
            return Lookup(HardwareProfile.load(path, here), "")
        except UserError as error:
            return Lookup(None, str(error))
    measure = f"measure one with `{here.command}`"
    others = [profile.identity.differences(here) for profile in _of_the_model(here.model)]
    if not others:
        return Lookup(None, f"there is none; {measure}")
    nearest = min(others, key=len)
    return Lookup(None, f"the nearest is of another set-up ({'; '.join(nearest)}); {measure}")


def _of_the_model(model: str) -> Iterator[HardwareProfile]:
    """All cached profiles of that target that can be read."""
    for path in store.profile_paths():
        try:
            profile = HardwareProfile.load(path)
        except UserError:
            continue  # of an earlier version, say: no help in naming what differs
        if profile.identity.model == model:
            yield profile
