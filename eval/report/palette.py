"""One look for each controller, the same in every chart and table of a report.

Six colours that the colour-blind tell apart; a symbol and a dash besides, so that colour is never
the only carrier, and more than six controllers repeat a colour with another dash and symbol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eval.svg import COLOURS

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross", "pentagon")
DASHES = ("solid", "dash", "dot", "dashdot")


class Look(NamedTuple):
    """How a controller is drawn."""

    colour: str
    symbol: str
    dash: str


ORACLE, PUBLISHED = "switching oracle", "published"
APART = {ORACLE: Look("#7d8590", "star", "dash"), PUBLISHED: Look("#7d8590", "diamond", "dot")}
"""No contenders: they take no colour from those that are."""


class Palette:
    """Looks by name, given in the order in which names are first seen."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._looks: dict[str, Look] = {}
        for name in names:
            self.look(name)

    def look(self, name: str) -> Look:
        """The look of `name`, a new one where it has none yet."""
        if name in APART:
            return APART[name]
        if name not in self._looks:
            i = len(self._looks)
            self._looks[name] = Look(
                COLOURS[i % len(COLOURS)],
                SYMBOLS[i % len(SYMBOLS)],
                DASHES[i // len(COLOURS) % len(DASHES)],
            )
        return self._looks[name]

    @property
    def names(self) -> tuple[str, ...]:
        """All that have a look, in order."""
        return tuple(self._looks)
