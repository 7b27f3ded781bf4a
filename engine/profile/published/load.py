"""Profiles that ship with DraftGym, by name; a path to a profile's file is as good."""

from __future__ import annotations

import difflib
from pathlib import Path

from engine.errors import UserError
from engine.profile.hardware_profile import HardwareProfile

FOLDER = Path(__file__).with_name("data")


def names() -> list[str]:
    """The shipped profiles."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def open_profile(name: str | Path) -> HardwareProfile:
    """The profile of that name, or in the file at that path.

    Raises UserError for a name that is none, with the nearest, and for a file that cannot be read.
    """
    text = str(name)
    if text in names():
        return HardwareProfile.load(FOLDER / f"{text}.json")
    path = Path(name)
    if path.suffix == ".json" or path.exists():
        return HardwareProfile.load(path)
    close = difflib.get_close_matches(text, names(), 1, 0.0)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UserError(
        f"no hardware profile is named {text!r}; {hint}`python -m engine.profile --list` shows "
        "all, and a measured one is named by its .json file"
    )
