"""TurboSpec (SmartSpec): the chain with which the batch emits most tokens a second.

Liu et al. 2024 (arXiv 2406.14066); rule and constants are those of the authors' code
(LiuXiaoxuanPKU/vllm, branch dsd, vllm/spec_decode/dsd.py; research/slo_serving.md §3.1). For b
requests, an acceptance rate α and chains of k drafted tokens

    goodput(k) = b · (1 − α^(k+1)) / (1 − α) / seconds(k),   goodput(0) counted 1.1 times

At every 20th step k goes up from 0 to the first that does not raise the goodput, and the last
before it is taken; until the first decision nothing is drafted. A k for which 1.1 · (context + k +
1) over all requests is more than the cache holds is worth nothing. α is one number for all,

    α ← 0.85 α + 0.15 α_observed,   0.7 at the start

Their times come from regressions over measured points; here from this machine's hardware profile.

*Ours*: α_observed is accepted / judged drafts of the step, where a chain's first rejected draft is
judged and those behind it are not (their rejection sampler also tells what would have become of
these; a walk along the target's tokens does not). `longest`, their number of look-ahead slots, is
8. Their other rule for n-gram proposals is left out: a view does not tell whose prompt has a match.

Probe rule after depth 0: the source has none, α stands still and only another load or context can
bring drafts back. *Ours*: after `probe` steps without any, one step drafts one token. That is 100,
after which their code tries n-gram proposals again; 0 never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np

from engine.errors import UserError
from engine.protocol import Controller, Limits, Outcome, Plan, View, uniform_plan
from policies.parameters import check_whole
from policies.spelling import spelled
from policies.step_prices import required_pricing, step_prices
from policies.tunable import Declared, Tunable

RATE, WEIGHT, INTERVAL, FAVOUR, RESERVE = 0.7, 0.15, 20, 1.1, 1.1
LONGEST, PROBE = 8, 100


def expected_tokens(rate: float, longest: int) -> list[float]:
    """Tokens a request emits with chains of 0…longest: 1 + α + … + α^k, also where α is 1."""
    return list(accumulate(rate**k for k in range(longest + 1)))


def climb(scores: Sequence[float]) -> int:
    """The last place before the scores first fail to rise."""
    return next((k for k, (a, b) in enumerate(pairwise(scores)) if b <= a), len(scores) - 1)


class TurboSpec(Controller):
    """One chain length for the batch, decided by predicted goodput."""

    needs_profile = True

    TUNABLE: ClassVar[Declared] = {
        "longest": Tunable(1, 8, whole=True),
        "interval": Tunable(1, 80, log=True, whole=True),
        "weight": Tunable(0.01, 0.6, log=True),
        "rate": Tunable(0.1, 0.95),
        "favour": Tunable(0.7, 1.6),
        "probe": Tunable(4, 400, log=True, whole=True),
    }

    def __init__(
        self,
        longest: int = LONGEST,
        interval: int = INTERVAL,
        weight: float = WEIGHT,
        rate: float = RATE,
        favour: float = FAVOUR,
        probe: int = PROBE,
    ) -> None:
        """Longest chain, steps between decisions, weight of a fresh rate, rate at the start.

        `favour` multiplies the goodput without drafts; `probe` as at the top. Raises UserError.
        """
        self.name = spelled(
            "turbospec", TurboSpec, longest=longest, interval=interval, weight=weight, rate=rate,
            favour=favour, probe=probe,
        )  # fmt: skip
        check_whole(self.name, 1, longest=longest, interval=interval)
        check_whole(self.name, 0, probe=probe)
        for label, share in (("weight", weight), ("rate", rate)):
            if not 0.0 <= share <= 1.0:
                raise UserError(f"{self.name}: {label} is {share!r}; expected a number of [0, 1]")
        if not 0.0 < favour < float("inf"):
            raise UserError(f"{self.name}: favour is {favour!r}; expected a factor above 0")
        self.longest, self.interval, self.weight = longest, interval, weight
        self.first_rate, self.favour, self.probe = rate, favour, probe
        self.reset(Limits())

    def reset(self, limits: Limits) -> None:
        """Nothing was observed yet."""
        self.rate = self.first_rate
        """α."""
        self.length = 0
        """k."""
        self.steps = 0
        self.idle_steps = 0
        """Steps without drafts since the last that had some."""

    def plan(self, view: View) -> Plan:
        """The same chain for everybody."""
        self.steps += 1
        if self.steps % self.interval == 0 and view.active.any():
            self.length = climb(self.goodput(view))
        depth = self.length
        if depth == 0:
            self.idle_steps += 1
            depth = int(self.probe > 0 and self.idle_steps > self.probe)
        if depth > 0:
            self.idle_steps = 0
        depth = min(depth, view.limits.max_depth, view.limits.max_nodes)
        return uniform_plan(view.limits, depth, width=1, nodes=depth)

    def goodput(self, view: View) -> list[float]:
        """Scores of chains of 0, 1, …: predicted tokens a second of the batch, k = 0 favoured."""
        limits, pricing = view.limits, required_pricing(view, self.name)
        lengths = np.arange(min(self.longest, limits.max_depth, limits.max_nodes) + 1)
        requests = int(np.count_nonzero(view.active))
        prices = step_prices(view, pricing, width=1)
        before_s = prices.before_verification_s(lengths)
        tokens = requests * (lengths + 1)
        seconds = (before_s + pricing.verify_s(tokens)).tolist()
        held = int(view.context_tokens.sum(where=view.active))
        scores = []
        # Of a handful of numbers, on which NumPy would spend more time.
        for length, emitted in enumerate(expected_tokens(self.rate, len(seconds) - 1)):
            score = requests * emitted / seconds[length]
            if length == 0:
                score *= self.favour
            fits = RESERVE * (held + requests * (length + 1)) <= view.kv_total_tokens
            scores.append(score if fits else 0.0)
        return scores

    def observe(self, outcome: Outcome) -> None:
        """The share of the judged drafts that was accepted goes into α."""
        whole = outcome.ran & ~outcome.finished  # an answer's end is no rejection
        proposed, accepted = outcome.proposed[whole].sum(1), outcome.accepted[whole].sum(1)
        judged = int(np.minimum(accepted + 1, proposed).sum())
        if judged:
            self.rate += self.weight * (float(accepted.sum()) / judged - self.rate)
