"""Has what is served changed? Arrivals and acceptance by class, watched from decision to decision.

Two tests run beside each other for every class, each with a reference that it learns itself:

- *arrivals*: a CUSUM of the Poisson log-likelihood ratio of twice, and of half, the rate seen since
  the last shift (Page 1954). An arrival adds ln 2 to "more" and takes as much from "fewer"; the
  arrivals to be expected are taken from "more", and half of them added to "fewer";
- *acceptance*: a Page-Hinkley test, both ways, of the accepted share of position 1, weighed by its
  evidence and by the iterations since the last look.

A test that raises the alarm forgets its reference. Whoever decides looks once a decision; a second
look at the same moment changes nothing. Of views alone it can only be told roughly who arrived: a
request that came and went between two looks is missed, one that was preempted comes a second time.
A wider tree is accepted more often, so a policy that changes widths all the time blurs the second
test. Scalars in plain Python: `policies.fleet_shifts` compiles the two rules for a fleet.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from engine.protocol import Ints, View

SPAN_TOKEN_TIMES = 256.0
"""The rate of arrivals is that of about so many unloaded TPOTs."""
LOG_2 = log(2.0)
FEWEST = 8.0  # arrivals from which a rate is known well enough to be compared with
ALARM = 5.0  # nats
TOLERANCE = 0.08  # of acceptance, that are no shift
EVIDENCE = 16.0  # iterations of it, from which a mean is known well enough
LONGEST = 256.0  # iterations that a mean remembers
DRIFT = 4.0  # accepted shares beyond the tolerance, summed over iterations, that raise the alarm
MOST_AT_ONCE = 4.0  # iterations that one look counts for


def next_arrivals(
    arrived: float, elapsed_s: float, seconds: float, total: float, more: float, fewer: float
) -> tuple[float, float, float, float, bool]:
    """`total` arrivals in `seconds` so far, and `arrived` in the next `elapsed_s`.

    Returns the last four arguments as they are then, and whether the rate has shifted.
    """
    if total >= FEWEST:
        expected = total / seconds * elapsed_s
        more = max(more + arrived * LOG_2 - expected, 0.0)
        fewer = max(fewer - arrived * LOG_2 + 0.5 * expected, 0.0)
        if more > ALARM or fewer > ALARM:
            return 0.0, 0.0, 0.0, 0.0, True
    return seconds + elapsed_s, total + arrived, more, fewer, False


def next_acceptance(
    acceptance: float, weight: float, mean: float, seen: float, better: float, worse: float
) -> tuple[float, float, float, float, bool]:
    """A `mean` of weight `seen` so far, and an acceptance of weight `weight` next.

    Returns the last four arguments as they are then, and whether acceptance has shifted.
    """
    if seen >= EVIDENCE:
        better = max(better + weight * (acceptance - mean - TOLERANCE), 0.0)
        worse = max(worse + weight * (mean - acceptance - TOLERANCE), 0.0)
        if better > DRIFT or worse > DRIFT:
            return 0.0, 0.0, 0.0, 0.0, True
    seen = min(seen + weight, LONGEST)
    if seen > 0.0:
        mean += (acceptance - mean) * weight / seen
    return mean, seen, better, worse, False


class Shifts:
    """What is remembered of the views of one episode; everything by class [C]."""

    def __init__(self, classes: int) -> None:
        """Nothing was seen."""
        zeros = [0.0] * classes
        self.looked_s = -1.0
        """Clock of the last look, -1 before the first."""
        self.changed_s = list(zeros)
        """Clock of the last shift, of the first look before one."""
        self.rate_hz = list(zeros)
        """Arrivals a second, lately."""
        self._request: Ints | None = None  # [S] who decoded in each slot, -1 for nobody
        self._queued, self._unseen = list(zeros), list(zeros)
        self._arrivals = [[0.0] * 4 for _ in zeros]  # what `next_arrivals` remembers
        self._acceptance = [[0.0] * 4 for _ in zeros]  # what `next_acceptance` remembers

    def look(
        self,
        view: View,
        acceptance: Sequence[float],
        evidence: Sequence[float],
        since: Sequence[float],
    ) -> None:
        """What a view shows; of position 1, by class [C], acceptance, its evidence (0 to 1) and the
        iterations since it was last proposed."""
        elapsed_s, token_s = view.clock_s - self.looked_s, view.unloaded_tpot_s
        if elapsed_s <= 0.0:
            return
        classes, queued = len(since), view.queued.tolist()
        before, self._request = self._request, np.where(view.active, view.request, -1)
        if before is None:
            self.changed_s = [view.clock_s] * classes
        else:
            is_new = view.active & (self._request != before)
            newcomers = np.bincount(view.slo_class[is_new], minlength=classes).tolist()
            span_s, prefilling = SPAN_TOKEN_TIMES * token_s, float(view.prefilling)
            iterations = MOST_AT_ONCE
            if view.iteration_s * MOST_AT_ONCE > elapsed_s:
                iterations = elapsed_s / view.iteration_s
            for c in range(classes):
                # Who left the queue and does not decode yet is seen later, if at all.
                arrived = queued[c] - self._queued[c] + newcomers[c] + self._unseen[c]
                self._unseen[c] = max(min(arrived, 0.0), -prefilling)
                arrived = max(arrived, 0.0)
                self.rate_hz[c] = (self.rate_hz[c] * span_s + arrived) / (elapsed_s + span_s)
                *known, changed = next_arrivals(arrived, elapsed_s, *self._arrivals[c])
                self._arrivals[c] = known
                if changed:
                    self.changed_s[c] = view.clock_s
                if since[c] == 0.0:  # else nothing was learned since
                    weight = evidence[c] * iterations
                    *known, changed = next_acceptance(acceptance[c], weight, *self._acceptance[c])
                    self._acceptance[c] = known
                    if changed:
                        self.changed_s[c] = view.clock_s
        self._queued = queued
        self.looked_s = view.clock_s
