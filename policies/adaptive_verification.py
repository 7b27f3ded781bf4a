"""vLLM's adaptive verification: of all drafted chains, the prefixes that pay for themselves.

The drafter always drafts `steps` tokens a request. How many of them are verified, and whose, is
decided over the batch (vllm-project/vllm, docs/features/speculative_decoding and
vllm/v1/worker/gpu/spec_decode/{adaptive_verification,acceptance_estimator}.py, read in November
2026; research/slo_serving.md §3.3). With n requests, c_j the chance that a request's draft j is
accepted if those before it were, and S_j = c_1 ⋯ c_j its survival, the budget is

    m* = argmax over m of (n + Σ of the m largest S) / (draft seconds + verify seconds(n + m))

and the m* largest S are verified, each request's a prefix since S falls along a chain. Seconds are
the hardware profile's. c_j = sigmoid(w_j · x + b_j), x a margin that says how decided the drafter
was; w_j = 0 and b_j = 1.5 at first. At every 100th step both take one Newton step on the log
likelihood of what these 100 verifications showed at position j, with 0.001 on the diagonal, unless
there were fewer than 50 observations or w_j would turn negative. Until the third such fit all
drafts are verified.

*Ours*: their x is the drafter's largest logit less its second; a controller sees probabilities, so
it is ln(q / (1 − q)) of the drafted token, the margin over all others together, within ±40 as
theirs. Their budget is chosen by the estimates of the step before, so that the processor need not
wait for the card; here drafts are at hand when it is chosen. `steps` is their examples' 7.

Probe rule after depth 0: drafting never stops, so S is fresh in every step. Positions that are not
verified tell nothing and keep their coefficients, as in the source.
"""

from __future__ import annotations

import numpy as np

from engine.kernels.best_prefixes import best_prefixes
from engine.kernels.chain_margins import chain_margins, chances
from engine.kernels.logistic_moments import logistic_moments
from engine.protocol import (
    Bools,
    Candidates,
    Controller,
    Floats,
    Ints,
    Limits,
    Outcome,
    Plan,
    View,
    uniform_plan,
)
from policies.parameters import check_whole
from policies.spelling import spelled
from policies.step_prices import required_pricing

STEPS, REFIT, WARM_UP, LEAST = 7, 100, 3, 50
FIRST_BIAS, RIDGE, SMALLEST_DETERMINANT = 1.5, 1e-3, 1e-12
# Margins of −40 and, with the largest number below 1, about 37.
LEAST_CHANCE, MOST_CHANCE = float(np.exp(-40.0)), 1.0 - 2.0**-53


class AcceptanceEstimator:
    """Chances of acceptance by position, as a logistic function of the drafter's margin."""

    def __init__(self, steps: int, refit: int, least: int) -> None:
        """Positions, steps between fits, observations that a fit needs."""
        self.refit, self.least = refit, least
        self.weight, self.bias = np.zeros(steps), np.full(steps, FIRST_BIAS)
        self.fits = 0
        self._steps = 0
        self._forget()

    def _forget(self) -> None:
        """A new round: a Newton step must see data at the coefficients that it starts from."""
        positions = len(self.weight)
        self._curvature = np.zeros((3, positions))  # of ww, wb and bb
        self._gradient = np.zeros((2, positions))
        self._seen = np.zeros(positions)

    def predict(self, margin: Floats) -> tuple[Floats, Floats]:
        """c for margins [S, K], and its product up to each draft."""
        return chances(margin, self.weight, self.bias)

    def learn(self, margin: Floats, predicted: Floats, admitted: Ints, accepted: Ints) -> None:
        """A step's verification: so many drafts of each request admitted, so many accepted [n]."""
        curvature, gradient, seen = logistic_moments(margin, predicted, admitted, accepted)
        self._curvature += curvature
        self._gradient += gradient
        self._seen += seen
        self._steps += 1
        if self._steps == self.refit:
            self._fit()
            self._steps = 0

    def _fit(self) -> None:
        """One Newton step at each position that was seen often enough."""
        (ww, wb, bb), (gw, gb) = self._curvature, self._gradient
        ww, bb = ww + RIDGE, bb + RIDGE
        determinant = ww * bb - wb * wb
        usable = (determinant > SMALLEST_DETERMINANT) & (self._seen >= self.least)
        by = np.where(usable, determinant, np.inf)
        weight = self.weight + (bb * gw - wb * gb) / by
        bias = self.bias + (ww * gb - wb * gw) / by
        sane = weight >= 0.0  # or a drafter more decided would be accepted less
        self.weight = np.where(sane, weight, self.weight)
        self.bias = np.where(sane, bias, self.bias)
        self.fits += 1
        self._forget()


class AdaptiveVerification(Controller):
    """Chains of one length for everybody, verified as far as it makes the batch faster."""

    needs_profile = True

    def __init__(
        self, steps: int = STEPS, refit: int = REFIT, warm_up: int = WARM_UP, least: int = LEAST
    ) -> None:
        """Drafted tokens; steps between fits; fits before trimming; observations a fit needs."""
        self.name = spelled(
            "adaptive-verification", AdaptiveVerification, steps=steps, refit=refit,
            warm_up=warm_up, least=least,
        )  # fmt: skip
        check_whole(self.name, 1, steps=steps, refit=refit, least=least)
        check_whole(self.name, 0, warm_up=warm_up)
        self.steps, self.refit, self.warm_up, self.least = steps, refit, warm_up, least
        self.reset(Limits())

    def reset(self, limits: Limits) -> None:
        """The estimator knows nothing."""
        self.estimator = AcceptanceEstimator(self.steps, self.refit, self.least)
        self._margin = self._predicted = np.zeros((limits.slots, self.steps))
        # The first calls load the kernels, which must not be charged to a decision.
        nobody = np.zeros(0, np.int64)
        logistic_moments(self._margin[:0], self._margin[:0], nobody, nobody)
        self._margins(nobody, np.zeros((0, 1)))
        self.estimator.predict(self._margin[:0])
        best_prefixes(self._margin[:0], nobody, 0, np.ones(1))

    def plan(self, view: View) -> Plan:
        """All chains in full; `select` trims them."""
        steps = min(self.steps, view.limits.max_depth, view.limits.max_nodes)
        return uniform_plan(view.limits, steps, width=1, nodes=steps)

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools:
        """The best prefixes over the batch."""
        size = np.where(view.active, np.minimum(candidates.size, self.steps), 0)
        self._margin = self._margins(size, candidates.probability)
        self._predicted, survival = self.estimator.predict(self._margin)
        kept = np.zeros(candidates.parent.shape, np.bool_)
        most = min(self.steps, candidates.parent.shape[1])
        if self.estimator.fits < self.warm_up:
            kept[:, :most] = np.arange(most) < size[:, None]
        else:
            requests = int(np.count_nonzero(view.active))
            seconds = self._seconds(view, plan, requests, int(size.sum()))
            kept[:, :most] = best_prefixes(survival, size, requests, seconds)[:, :most]
        return kept

    def _margins(self, size: Ints, probability: Floats) -> Floats:
        return chain_margins(size, probability, self.steps, LEAST_CHANCE, MOST_CHANCE)

    def _seconds(self, view: View, plan: Plan, requests: int, drafts: int) -> Floats:
        """A step's length with 0, 1, …, all drafts verified, the drafting done in any case."""
        pricing = required_pricing(view, self.name)
        planned = requests + int(np.minimum(plan.nodes, plan.depth)[view.active].sum())
        tokens = np.arange(requests - 1, requests + drafts + 1)
        tokens[0] = planned  # in one question, which costs as much as many
        verify_s = pricing.verify_s(tokens)
        all_but_s = pricing.step_s(plan) - float(verify_s[0])
        return verify_s[1:] + all_but_s

    def observe(self, outcome: Outcome) -> None:
        """What was verified teaches the estimator; an answer's end is no rejection."""
        whole = outcome.ran & ~outcome.finished
        admitted = outcome.proposed.sum(1) * whole
        self.estimator.learn(self._margin, self._predicted, admitted, outcome.accepted.sum(1))
