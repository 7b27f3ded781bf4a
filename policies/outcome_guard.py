"""Does the SLO ledger look worse than it did? A window over outcomes against an expectation.

Counted are requests with a TPOT objective. The figure is the share of their emitted tokens that
were valid, which is to say in time (ALGORITHMS.md §10), over the last `window` iterations. It is
*worse* when even the upper end of its 95 % Wilson interval lies more than `margin` below the
expectation; tokens of one iteration stand or fall together, so a request and iteration counts as
one observation. It has *recovered* when it is within half the margin again: between the two nothing
changes, so that noise does not flip the answer.

The expectation is the slow mean of the figure while all is well, or a number given beforehand. The
scheme is research/rl_toolkits.md §3.2's, the defaults are ours and not calibrated.
"""

from __future__ import annotations

import math
from collections import deque

from engine.errors import UserError

Z = 1.96  # 95 % within the interval
SLOWNESS = 16  # windows over which the expectation forgets


class OutcomeGuard:
    """Watches one replica's outcomes."""

    def __init__(
        self, window: int = 64, margin: float = 0.1, expected: float | None = None
    ) -> None:
        """window in iterations; margin and expected are shares. Raises UserError."""
        if type(window) is not int or window < 1:
            raise UserError(f"window is {window!r}; expected a whole number of iterations above 0")
        if not 0.0 < margin < 1.0:
            raise UserError(f"margin is {margin!r}; expected a share between 0 and 1")
        if expected is not None and not 0.0 <= expected <= 1.0:
            raise UserError(f"expected is {expected!r}; expected a share of 0 to 1, or None")
        self.window, self.margin, self._given = window, margin, expected
        self.expected = expected
        self._rows: deque[tuple[int, int, int]] = deque(maxlen=window)

    def reset(self) -> None:
        """A new episode begins."""
        self.expected = self._given
        self.forget()

    def forget(self) -> None:
        """Somebody else acts from now on, and is judged by his own outcomes."""
        self._rows.clear()

    def note(self, requests: int, emitted: int, valid: int) -> None:
        """One iteration of requests with objectives: how many, and their tokens."""
        if requests > 0:
            self._rows.append((requests, emitted, valid))

    @property
    def is_full(self) -> bool:
        """Whether the window has all of its iterations."""
        return len(self._rows) == self.window

    @property
    def share(self) -> float:
        """Valid of the emitted tokens in the window; NaN while it holds none."""
        return _share(list(self._rows))

    @property
    def latest_share(self) -> float:
        """The same in the newest quarter of a full window: what it has come to when it is worse."""
        return _share(list(self._rows)[-max(self.window // 4, 1) :])

    def learn(self) -> None:
        """All is well: the expectation follows the window, once that is full."""
        if self._given is not None or not self.is_full:
            return
        if self.expected is None:
            self.expected = self.share
        else:
            self.expected += (self.share - self.expected) / (SLOWNESS * self.window)

    def accept(self) -> None:
        """Take what the window shows for what can be expected, unless it was given beforehand."""
        if self._given is None:
            self.expected = self.share

    def is_worse(self) -> bool:
        """Whether a full window is below the expectation beyond doubt."""
        if self.expected is None or not self.is_full:
            return False
        observations = sum(row[0] for row in self._rows)
        return wilson_upper(self.share, observations) < self.expected - self.margin

    def has_recovered(self) -> bool:
        """Whether the window is as good as expected, give or take half the margin.

        A window without tokens speaks against nobody.
        """
        return self.expected is None or not self.share < self.expected - self.margin / 2


def _share(rows: list[tuple[int, int, int]]) -> float:
    emitted = sum(row[1] for row in rows)
    return sum(row[2] for row in rows) / emitted if emitted else math.nan


def wilson_upper(share: float, observations: int) -> float:
    """Upper end of the 95 % Wilson interval of a share; 1 of no observations.

    Wilson 1927: (p + z²/2n + z √(p (1 − p)/n + z²/4n²)) / (1 + z²/n).
    """
    if observations == 0:
        return 1.0
    a = Z * Z / observations
    spread = math.sqrt(share * (1 - share) / observations + (a / (2 * Z)) ** 2)
    return (share + a / 2 + Z * spread) / (1 + a)
