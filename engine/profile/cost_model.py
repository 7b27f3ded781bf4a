"""What one pass of a network costs: seconds as a function of tokens, cached tokens and requests.

A curve over the tokens, piecewise linear with breakpoints and with jumps where the machine has a
staircase (captured graph sizes, tile sizes), plus terms linear in what attention reads
(research/engines.md §7.2). No coefficient is negative, so no cost falls when there is more to do.
Evaluation only, NumPy only; `fit.py` finds the numbers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from engine.protocol import Floats, Ints

TABULATED = 8192
"""Counts that are looked up once they have been worked out."""


@dataclass(frozen=True)
class Curve:
    """Seconds over a count: `base_s`, slopes between knots, and jumps. Never falls."""

    base_s: float = 0.0
    knots: tuple[float, ...] = (0.0,)
    """Where each slope begins, ascending; the last one goes on for ever."""
    slopes_s: tuple[float, ...] = (0.0,)
    """Seconds for each further token from that knot on."""
    jumps_at: tuple[float, ...] = ()
    jumps_s: tuple[float, ...] = ()
    """Seconds added to every count above `jumps_at`."""

    def __post_init__(self) -> None:
        """Raise ValueError for what is no curve, or might fall."""
        if len(self.knots) != len(self.slopes_s) or len(self.jumps_at) != len(self.jumps_s):
            raise ValueError("a curve needs a slope for each knot and a height for each jump")
        if min((self.base_s, *self.slopes_s, *self.jumps_s)) < 0:
            raise ValueError("a curve's base, slopes and jumps must not be negative")
        if list(self.knots) != sorted(self.knots) or not self.knots:
            raise ValueError(f"a curve's knots must ascend, got {self.knots}")
        if list(self.jumps_at) != sorted(self.jumps_at):
            raise ValueError(f"a curve's jumps must ascend, got {self.jumps_at}")

    def __call__(self, count: ArrayLike) -> Floats:
        """Seconds at each count, of its shape."""
        x = np.asarray(count, float)
        knots, at_knots, jumps_at, jumped = self._arrays
        beyond = self.slopes_s[-1] * np.maximum(x - self.knots[-1], 0.0)
        return np.interp(x, knots, at_knots) + beyond + jumped[jumps_at.searchsorted(x)]

    def of_whole(self, count: Ints) -> Floats:
        """As the call, looked up where possible: whole numbers from 0 on."""
        try:
            found: Floats = self._table[count]
        except IndexError:  # asked beforehand, whether all are in the table costs as much again
            return self(count)
        return found

    def end_within(self, seconds: float, most: int) -> int:
        """A whole count from which on, up to `most`, every one takes longer than `seconds`."""
        if most >= TABULATED:
            return most + 1
        return min(most + 1, int(self._least_from.searchsorted(seconds, side="right")))

    def at(self, count: float) -> float:
        """Seconds at one count, without arrays: the engine predicts every step."""
        at_knots, jumped = self._sums
        piece = max(bisect_right(self.knots, count) - 1, 0)
        rise = self.slopes_s[piece] * max(count - self.knots[piece], 0.0)
        return at_knots[piece] + rise + jumped[bisect_left(self.jumps_at, count)]

    def at_each(self, counts: Ints) -> Floats:
        """As `at` to the last bit, at many counts at once."""
        knots, at_knots, jumps_at, jumped = self._arrays
        x = counts.astype(float)
        piece = np.maximum(knots.searchsorted(x, side="right") - 1, 0)
        rise = np.array(self.slopes_s)[piece] * np.maximum(x - knots[piece], 0.0)
        found: Floats = at_knots[piece] + rise + jumped[jumps_at.searchsorted(x)]
        return found

    def parts(self) -> tuple[Floats, Floats]:
        """[3, K] knots, seconds there and slopes; [2, J + 1] jumps, and their sum before each."""
        knots, at_knots, jumps_at, jumped = self._arrays
        pieces = np.stack([knots, at_knots, np.array(self.slopes_s, float)])
        return pieces, np.stack([np.append(jumps_at, np.inf), jumped])

    @cached_property
    def _sums(self) -> tuple[list[float], list[float]]:
        """Seconds at each knot, and the sum of the first 0, 1, … jumps."""
        rises = np.diff(self.knots) * self.slopes_s[:-1]
        at_knots = [self.base_s, *(self.base_s + np.cumsum(rises)).tolist()]
        return at_knots, [0.0, *np.cumsum(self.jumps_s).tolist()]

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Knots, seconds at each, where jumps are, and their sums, as arrays."""
        knots, at_knots, jumps_at, jumped = (
            np.array(a, float) for a in (self.knots, self._sums[0], self.jumps_at, self._sums[1])
        )
        return knots, at_knots, jumps_at, jumped

    @cached_property
    def _table(self) -> Floats:
        """Seconds at 0, 1, …"""
        return self(np.arange(TABULATED))

    @cached_property
    def _least_from(self) -> Floats:
        """The least from each count on: rounding may make the curve fall by its last digit."""
        return np.minimum.accumulate(self._table[::-1])[::-1]


@dataclass(frozen=True)
class PassCost:
    """One pass over some tokens of some requests."""

    curve: Curve = Curve()
    """Over the tokens of the pass."""
    kv_token_s: float = 0.0
    """For each cached token of the requests in the pass, read once."""
    attended_s: float = 0.0
    """For each pair of a token of the pass and a cached token that it attends to."""
    request_s: float = 0.0
    """For each request in the pass."""

    def __post_init__(self) -> None:
        """Raise ValueError for a negative cost."""
        if min(self.kv_token_s, self.attended_s, self.request_s) < 0:
            raise ValueError("the costs of a pass must not be negative")

    def __call__(
        self, tokens: ArrayLike, kv_tokens: ArrayLike = 0.0, requests: ArrayLike = 1
    ) -> Floats:
        """Seconds; `kv_tokens` are those of all requests together. Arrays broadcast."""
        n, kv, count = (np.asarray(a, float) for a in (tokens, kv_tokens, requests))
        return self._with(self.curve(n), n, kv, count)

    def of_whole(
        self, tokens: Ints, kv_tokens: float | Floats, requests: float | Floats | Ints
    ) -> Floats:
        """As the call, in a fraction of the time: whole numbers of tokens from 0 on."""
        return self._with(self.curve.of_whole(tokens), tokens, kv_tokens, requests)

    def _with(
        self,
        curve_s: Floats,
        tokens: Floats | Ints,
        kv_tokens: float | Floats,
        requests: float | Floats | Ints,
    ) -> Floats:
        """The curve's seconds and all the others."""
        # Of plain numbers NumPy would make arrays, which takes longer than all the rest.
        alone = isinstance(requests, int | float)
        each = kv_tokens / (max(requests, 1.0) if alone else np.maximum(requests, 1.0))
        attended = self.attended_s * tokens * each
        return curve_s + self.kv_token_s * kv_tokens + attended + self.request_s * requests

    def at(self, tokens: float, kv_tokens: float, requests: float) -> float:
        """Seconds of one pass, as the call but without arrays."""
        attended = self.attended_s * tokens * kv_tokens / max(requests, 1.0)
        rest = self.kv_token_s * kv_tokens + self.request_s * requests
        return self.curve.at(tokens) + attended + rest
