"""How many requests should run at once: as many as bring the most tokens within their objectives.

A larger batch emits more tokens a second, and every one of its requests fewer. With n running, one
that emits L tokens meanwhile waits for the prompts of those who replace the n - 1 others:

    pace(n) = t(n) / g + (n - 1) · p / L,    met_c = 1 / (1 + (pace(n) / τ_c)^SHARP)
    goodput(n) ∝ n / (pace(n) + p / L) · Σ_c share_c · met_c

t is an ordinary step by the hardware profile, g how much faster than that tokens came of late, p
the seconds that reading a prompt took and share_c how many requests are of class c, with τ_c for an
objective. The batch is the n of most goodput. So that nobody waits for ever, slots beyond it open
as the oldest waiting request ages, and all are open at `wait` unloaded token times: that is the
longest queue age which this rule may cause.
"""

from __future__ import annotations

import numpy as np

from engine.protocol import Outcome, PriceTable, View

SHARP = 8.0  # how steeply objectives are lost around a pace right at them
KEEP = 0.97  # weight of earlier requests, for every new one
KEEP_GAIN = 0.95  # of earlier iterations
PRIOR_REQUESTS = 2.0
PRIOR_TOKENS = 64.0
MOST_GAIN = 4.0


class GoodputBatch:
    """Learns mix, lengths, prompts and gain; one a served engine."""

    def __init__(self, classes: int, wait: float) -> None:
        """Begins with all classes alike; `wait` as the module says, at least 0."""
        self.wait = wait
        self.gain = 1.0
        self.step_s = 0.0
        """Seconds of a step of late, prompts not counted; 0 before the first."""
        self._shares = np.ones(classes)
        self._requests = PRIOR_REQUESTS
        self._tokens = PRIOR_REQUESTS * PRIOR_TOKENS
        self._prompts_s = 0.0
        self._unread_s = 0.0  # prompts read since the last plan
        self._ids: set[int] = set()

    def size(self, view: View, table: PriceTable) -> int:
        """Requests that may hold a slot, at least 1."""
        self._meet(view)
        slots = view.limits.slots
        running = np.arange(1, slots + 1)
        prompt_token_s = self._prompts_s / self._tokens  # p / L
        pace_s = table.ordinary_s[running] / self.gain + (running - 1) * prompt_token_s
        met = 1.0 / (1.0 + (pace_s[:, None] / view.class_tpot_objective_s) ** SHARP)
        goodput = running / (pace_s + prompt_token_s) * (met @ self._shares)
        wanted = int(np.argmax(goodput)) + 1
        age = float(view.oldest_queued_s.max(initial=0.0)) / view.unloaded_tpot_s
        opened = slots if age >= self.wait else int(slots * age / self.wait)
        return max(wanted, opened)

    def emitted_per_s(self, view: View, table: PriceTable) -> float:
        """Tokens a second of all who decode now, between prompts, as fast as of late."""
        running = int(np.count_nonzero(view.active))
        return running * self.gain / max(float(table.ordinary_s[running]), 1e-12)

    def ordinary_pace_s(self, view: View, table: PriceTable) -> float:
        """Seconds a token of those who decode now without drafts, prompts of others included."""
        running = int(np.count_nonzero(view.active))
        others = max(running + view.prefilling - 1, 0)
        return float(table.ordinary_s[running]) + others * self._prompts_s / self._tokens

    def observe(self, outcome: Outcome, table: PriceTable) -> None:
        """What an iteration took, and how many tokens it brought for that."""
        self._unread_s += outcome.prefill_s
        ran, step_s = (
            int(np.count_nonzero(outcome.ran)),
            outcome.draft_s + outcome.verify_s + outcome.other_s,
        )
        if ran and step_s > 0:
            each = float(outcome.accepted_length.sum()) / ran
            self.step_s += (1 - KEEP_GAIN if self.step_s else 1.0) * (step_s - self.step_s)
            gain = each * float(table.ordinary_s[ran]) / step_s
            self.gain += (1 - KEEP_GAIN) * (gain - self.gain)
            self.gain = min(max(self.gain, 1.0), MOST_GAIN)

    def _meet(self, view: View) -> None:
        """Take note of those who decode for the first time, and of the time their prompts took."""
        slots = np.flatnonzero(view.active).tolist()
        before, self._ids = self._ids, set(view.request[view.active].tolist())
        for slot in slots:
            if int(view.request[slot]) not in before:
                self._shares *= KEEP
                self._shares[view.slo_class[slot]] += 1.0
                self._requests = KEEP * self._requests + 1.0
                self._tokens = KEEP * self._tokens + float(view.remaining_tokens[slot])
                self._prompts_s *= KEEP
        self._prompts_s += self._unread_s
        self._unread_s = 0.0
