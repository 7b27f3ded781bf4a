"""The energy of iterations from a counter that is read less often than iterations end.

An iteration takes tens of milliseconds; a card renews its energy counter about every 100 ms and is
asked about as often. So an iteration's energy is formed in two steps:

1. *Guess*, when the iteration ends: power as last read, times the time that counts.
2. *Settle*, when the next reading comes: of the counter's advance since the reading before, the
   share of that time which counted is due. What the guesses fell short of it, or told too much, is
   owed, and iterations repay it over the next `REPAY_S` of counted time, so that no single one
   bears it.

What follows for a reader. Where all time counts, iterations add up to the counter, less what is
still owed at the end: about `REPAY_S` times the difference between power read and power counted,
however long the run. A single iteration carries the error of the power reading, of a change since
it, and of its part of the debt. Inside one sampling interval, time that counts and time that does
not are taken to draw alike; an interval that is wholly excluded is excluded exactly. Who reads the
counter, and on which clock, is not decided here.
"""

from __future__ import annotations

import math

REPAY_S = 1.0  # ten readings, since the advance of one may be off by a whole renewal


class SampledEnergy:
    """Shares a counter out among iterations. All calls take the time now, in s of one clock."""

    def __init__(self) -> None:
        self.watts = 0.0
        """As last read; of the last interval between readings where power cannot be read."""
        self._in_iteration = self._counts = False
        self._now_s = 0.0
        self._reading: tuple[float, float] | None = None  # the last: time, joules
        # Of the iteration under way, and of the time that counted since the last reading.
        self._iteration_s = self._iteration_j = self._since_s = self._since_j = 0.0
        self._due_j = 0.0  # settled, all iterations
        self._told_j = 0.0  # by `end`, all iterations

    def begin(self, now_s: float) -> None:
        """An iteration starts; one that never ended is dropped, with what was owed till then."""
        self._advance(now_s)
        if self._in_iteration:
            self._told_j = self._due_j + self._since_j
        self._iteration_s = self._iteration_j = 0.0
        self._in_iteration = self._counts = True

    def pause(self, now_s: float) -> None:
        """What follows does not count."""
        self._advance(now_s)
        self._counts = False

    def resume(self, now_s: float) -> None:
        """What follows counts."""
        self._advance(now_s)
        self._counts = True

    def end(self, now_s: float) -> float:
        """The iteration is over: its joules, never below 0."""
        self.pause(now_s)
        self._in_iteration = False
        owed_j = self._due_j + self._since_j - self._told_j - self._iteration_j
        repaid_j = owed_j * min(self._iteration_s / REPAY_S, 1.0)
        joules = max(self._iteration_j + repaid_j, 0.0)
        self._told_j += joules
        return joules

    def sample(self, now_s: float, joules: float, watts: float) -> None:
        """A reading of counter and power; NaN where there is none this time."""
        self._advance(now_s)
        if not math.isnan(joules):
            due_j = self._since_j  # the guess stands at the first reading, and if the counter fell
            if self._reading is not None:
                before_s, before_j = self._reading
                if joules >= before_j and now_s > before_s:
                    mean_watts = (joules - before_j) / (now_s - before_s)
                    due_j = mean_watts * self._since_s
                    self.watts = mean_watts
            self._due_j += due_j
            self._since_s = self._since_j = 0.0
            self._reading = now_s, joules
        if not math.isnan(watts):
            self.watts = watts

    def _advance(self, now_s: float) -> None:
        if self._counts:
            spent_s = now_s - self._now_s
            spent_j = spent_s * self.watts
            self._iteration_s += spent_s
            self._iteration_j += spent_j
            self._since_s += spent_s
            self._since_j += spent_j
        self._now_s = now_s


class PowerIntegral:
    """Stands in for the counter that older cards lack: power over time, by trapezia."""

    def __init__(self) -> None:
        self._joules = 0.0
        self._last: tuple[float, float] | None = None  # time, watts

    def add(self, now_s: float, watts: float) -> float:
        """Joules since the first reading; NaN when there is no power this time."""
        if math.isnan(watts):
            return math.nan
        if self._last is not None:
            before_s, before_watts = self._last
            self._joules += (now_s - before_s) * (before_watts + watts) / 2
        self._last = now_s, watts
        return self._joules
