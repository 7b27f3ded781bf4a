"""What several controllers ask of a parameter, said in one way."""

from __future__ import annotations

from engine.errors import UserError


def check_whole(name: str, least: int, /, **given: object) -> None:
    """Raise UserError, naming the controller, for what is no whole number of at least `least`."""
    for label, value in given.items():
        if type(value) is not int or value < least:
            raise UserError(
                f"{name}: {label} is {value!r}; expected a whole number of at least {least}"
            )
