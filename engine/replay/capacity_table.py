"""Capacity by tree and class, and how that of a mix is read off it.

Capacity on a mix is the highest rate at which the best fixed tree drains it (ALGORITHMS.md §10).
The table says, for every tree and every class served alone by a server that is always full, the
seconds that a prompt token and an emitted token take. A request of a mix takes its class's seconds;
under one tree a mix takes the mean over its requests, and its best tree is the one that takes
least. So regimes whose mixes change need no sweep of their own, and lengths may be others than
those of the sweep. What that is off by, docs/workloads.md says. The sweep is `capacity_sweep`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import UserError
from engine.protocol import Floats
from engine.replay.capacity_trees import Tree
from engine.workload.capacity_mix import Asked


@dataclass(frozen=True)
class CapacityTable:
    """What was found of T trees and C classes."""

    trees: tuple[Tree, ...]
    classes: tuple[str, ...]
    prompt_s: Floats  # [T, C] seconds a prompt token
    output_s: Floats  # [T, C] seconds an emitted token, with all that decoding waits for

    def rps(self, asked: Sequence[Asked]) -> float:
        """Requests per second of the mix under its best tree."""
        return 1.0 / float(self.request_s(asked).min())

    def best(self, asked: Sequence[Asked]) -> Tree:
        """The tree that drains the mix fastest; of equals the first."""
        return self.trees[int(self.request_s(asked).argmin())]

    def request_s(self, asked: Sequence[Asked]) -> Floats:
        """[T] seconds of the full server that a request takes on average, by tree.

        A class that the table does not know counts as the mean of those that it knows. Raises
        UserError for a mix without shares or without tokens.
        """
        total = sum(part.share for part in asked)
        tokens = sum(part.share * (part.prompt_tokens + part.output_tokens) for part in asked)
        if not (total > 0 and tokens > 0):
            raise UserError(
                f"capacity of a mix of {len(asked)} classes with {total:g} shares and {tokens:g} "
                "tokens; expected requests that have a prompt or an answer"
            )
        seconds = np.zeros(len(self.trees))
        for part in asked:
            prompt_s, output_s = self._of(part.name)
            own = prompt_s * part.prompt_tokens + output_s * part.output_tokens
            seconds += part.share / total * own
        return seconds

    def alike(self, prompt_tokens: float, output_tokens: float) -> list[Asked]:
        """The mix of all classes in equal shares, whose requests are that long."""
        return [Asked(name, 1.0, prompt_tokens, output_tokens) for name in self.classes]

    def _of(self, name: str) -> tuple[Floats, Floats]:
        """[T] each, of a class."""
        if name not in self.classes:
            return self.prompt_s.mean(axis=1), self.output_s.mean(axis=1)
        c = self.classes.index(name)
        return self.prompt_s[:, c], self.output_s[:, c]
