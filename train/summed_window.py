"""What engines of their own did lately, summed over them step by step.

The figures are those of a fleet (`train.watched_fleet`): rates are per second of one engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from engine.protocol import Floats, Ints
from policies.actions import Actions
from train.ended_requests import ENDED
from train.watched_fleet import figures_of
from train.window import ACTION, SPAN_S

KEPT = ("_sums", "elapsed_s", "_names")
"""What a snapshot carries of it."""


class SummedWindow:
    """Keeps the last `span_s` engine seconds of every engine, across episodes."""

    table: Actions
    num_envs: int

    def begin_window(self, span_s: float = SPAN_S) -> None:
        """Nothing was seen yet."""
        self.span_s = span_s
        self.elapsed_s = 0.0  # engine time of all that the window holds
        self._sums: deque[Floats] = deque()  # of each step over the engines, by `_names`
        self._names: list[str] = []

    def note(
        self, infos: Sequence[Mapping[str, Any]], actions: Iterable[Ints], ended: Floats
    ) -> None:
        """Add a step of all engines, or of those that took it.

        `actions` are tier indices [D] each, `ended` what `train.ended_requests` says of the
        requests that ended meanwhile.
        """
        chosen = [self.table.figures(action) for action in actions]
        classes = self.table.class_names
        numbers = [
            name for name, value in infos[0].items() if isinstance(value, int | float | np.number)
        ]
        by_class = [f"{kind}/{name}" for kind in ENDED for name in classes]
        self._names = [*numbers, "steps", *by_class, *(ACTION + name for name in chosen[0])]
        sums = [sum(info[name] for info in infos) for name in numbers]
        sums += [
            len(infos),
            *ended.ravel(),
            *(sum(of[name] for of in chosen) for name in chosen[0]),
        ]
        self._sums.append(np.array(sums, np.float64))
        at = numbers.index("elapsed_s")
        self.elapsed_s += sums[at]
        while self.elapsed_s - self._sums[0][at] >= self.span_s * self.num_envs:
            self.elapsed_s -= self._sums.popleft()[at]

    def figures(self) -> dict[str, float]:
        """Tags and values for TensorBoard; a figure that has nothing to count is left out."""
        if not self._sums or self.elapsed_s <= 0:
            return {}
        total = dict(zip(self._names, np.sum(self._sums, axis=0).tolist(), strict=True))
        return figures_of(total, self.elapsed_s, self.table.class_names)
