"""Slack-priced: the analytic controller that a learned one must beat. Ours (ALGORITHMS.md §8).

AdaServe knows slack but its budget is set by hand; vLLM prices a budget but knows no slack. Here
every iteration maximises, by the hardware profile's seconds t and joules,

    Σ_r u_r · E[tokens of r] / (t + λ · joules)

over depth and width of each request before it drafts (by a forecast of what nodes bring,
`policies.forecast`), and over the nodes to verify once they are drafted. u_r grows as slack
shrinks. With R tokens still allowed, request r keeps its objective τ if a token takes it no longer
than τ · (R + slack) / R from now on; `pace` is what it would take without drafts (with `wait`, the
prompts of those who follow included):

    pressure_r = pace · R / (τ · (R + slack)),    u_r = max(min(pressure_r, reach)^power, lax)

Above `reach` the objective is lost, as it is without time left, and u_r = `lost`: a floor, not 0.
Who decodes gets a token in every iteration whatever u_r is, which is the least progress.

Three things go beyond the sketch, and each may be switched off:

- A drafter that has not run for some tokens must catch up, which pays back over the coming
  iterations: the plan charges 1 / `AMORTISED` of it.
- `chunks`: as much of the prompts is read before a step as those who decode can afford
  (`policies.prompt_share`), so a batch grows no larger than its objectives bear.
- `wait`: no more requests run at once than meet the most objectives (`policies.goodput_batch`), and
  a request waits at most about so many unloaded token times for it. Off unless asked for: it costs
  throughput, so goodput and completion times, more than `chunks` does for the same objectives.

`lax`, `lost` and `wait` were chosen by hand at training seed 0 on drawn arrivals in AdaServe's
published world (Poisson at 8 and 10 requests a second with its short prompts, 3 with prompts of
about 1,200 tokens, 5 with coding at 24 ms; rate waves of both lengths), `lax` among 0.25, 0.5, 0.7
and 0.8, `lost` of 0.25 and 1, `wait` of 0, 100 and 600; no command repeats that.

A larger u_r never lowers the tokens a second expected of r, the others' being equal, nor, where
every node costs alike, its nodes (`tests/test_slack_priced.py`).

Probe rule: after `PROBE` iterations without a draft the request of most weight drafts a chain of
two, since whatever is forecast may have changed.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from engine.errors import UserError
from engine.kernels.learned_selection import learned_selection
from engine.kernels.planned_shapes import planned_shapes
from engine.kernels.price_table import price_table
from engine.kernels.slack_weights import drafting_s, slack_weights
from engine.protocol import (
    Bools,
    Candidates,
    Controller,
    Floats,
    Limits,
    Outcome,
    Plan,
    PriceTable,
    View,
)
from policies.forecast import FIRST, KEEP, PRIOR, SIBLINGS, Forecast
from policies.goodput_batch import GoodputBatch
from policies.prompt_share import prompt_tokens
from policies.spelling import spelled
from policies.step_prices import required_tables
from policies.tunable import Declared, Tunable

LEAST = 0.02  # path probability below which no drafted node is looked at
LEAST_FORECAST = 0.05  # and no forecast one: a sweep takes as long as there are nodes
RANKS = 4  # nodes of a layer that are forecast
WIDTHS = (1, 2, 4)
MOST_NODES = 512  # that are priced, over the batch
AMORTISED = 8.0  # iterations
PROBE = 32  # iterations
HISTORY_PRIOR = 8.0  # drafts that a request's likeness to its class counts for


class SlackPriced(Controller):
    """Tokens weighed by slack, over seconds and joules."""

    name = "slack-priced"
    needs_profile = True

    TUNABLE: ClassVar[Declared] = {
        "power": Tunable(0.25, 6.0, log=True),
        "lax": Tunable(0.05, 1.0, log=True),
        "lost": Tunable(0.05, 2.0, log=True),
        "reach": Tunable(1.0, 10.0, log=True),
        "joule_s": Tunable(0.0, 0.05),
        "wait": Tunable(0.0, 100.0),
    }

    def __init__(
        self,
        power: float = 2.0,
        lax: float = 0.5,
        lost: float = 1.0,
        reach: float = 3.0,
        joule_s: float = 0.0,
        chunks: bool = True,
        wait: float = 0.0,
    ) -> None:
        """The module says what they are. Raises UserError for what cannot be.

        joule_s: λ, the seconds that a joule is worth. wait: 0 fills all slots, as the engine does.
        """
        given = {"power": power, "lax": lax, "lost": lost, "reach": reach, "joule_s": joule_s}
        self.name = spelled("slack-priced", SlackPriced, **given, chunks=chunks, wait=wait)
        for label, value in (*given.items(), ("wait", wait)):
            above = label in ("lax", "lost", "reach")
            if not (0 <= value < float("inf")) or (above and value == 0):
                least = "above 0" if above else "of at least 0"
                raise UserError(f"{self.name}: {label} is {value!r}; expected a number {least}")
        self.power, self.lax, self.lost, self.reach = power, lax, lost, reach
        self.joule_s, self.chunks, self.wait = float(joule_s), chunks, wait
        self.reset(Limits())

    def reset(self, limits: Limits) -> None:
        """A new episode begins."""
        self._forecast: Forecast | None = None
        self._batch: GoodputBatch | None = None
        self._table: PriceTable | None = None
        self._weight, self._base = np.zeros(limits.slots), 0.0
        self._margin = np.ones(limits.slots)
        self._widths = np.array([w for w in WIDTHS if w <= limits.max_width])
        self._nothing = np.zeros(limits.max_depth)
        self._expected = self._nothing  # drafts by layer, of the iteration under way
        self._draft_s = 0.0  # of the plan
        self._undrafted = 0  # iterations
        _warm_up()

    def plan(self, view: View) -> Plan:
        """Depth and nodes by request, one width for all, and what is read and run next to it."""
        pricing = required_tables(view, self.name)
        limits = view.limits
        forecast, batch = self._forecast, self._batch
        if forecast is None or batch is None:
            forecast, batch = self._learn_anew(len(view.class_names), limits)
        running = int(np.count_nonzero(view.active))
        table = pricing.table(min(running * limits.max_nodes, MOST_NODES), self._widths)
        self._table = table
        self._weight, needed_per_s = self.weighed(view, batch.ordinary_pace_s(view, table))
        self._base = float(self._weight.sum())
        depth, width, nodes, taken, self._draft_s = planned_shapes(
            forecast.seen,
            forecast.total,
            forecast.scale,
            PRIOR,
            FIRST,
            SIBLINGS,
            HISTORY_PRIOR,
            LEAST_FORECAST,
            view.active,
            view.slo_class,
            view.accepted,
            view.proposed,
            view.remaining_tokens,
            limits.max_nodes,
            self._weight,
            self._base,
            self._widths,
            table.verify_s,
            table.verify_joules,
            table.draft_first_s,
            table.draft_next_s,
            table.draft_watts,
            table.undrafted_tokens,
            AMORTISED,
            self.joule_s,
            view.power_cap_watts,
        )
        self._undrafted = 0 if taken else self._undrafted + 1
        if self._undrafted >= PROBE:
            slot = int(np.argmax(self._weight))
            left = max(int(view.remaining_tokens[slot]) - 1, 0)
            depth[slot] = nodes[slot] = min(2, limits.max_depth, left)
            next_s = table.draft_next_s[0]
            self._draft_s = drafting_s(depth, table.undrafted_tokens, table.draft_first_s, next_s)
            self._undrafted = 0
        reading = None
        if self.chunks:
            step_s = batch.step_s or float(table.ordinary_s[running])
            emitted_per_s = batch.emitted_per_s(view, table)
            reading = prompt_tokens(needed_per_s, emitted_per_s, step_s, table.prefill_s)
        return Plan(
            depth=depth,
            width=width,
            nodes=nodes,
            margin=self._margin.copy(),  # whoever is handed a plan may write into it
            node_budget=limits.slots * limits.max_nodes,
            prefill_tokens=reading,
            max_running=batch.size(view, table) if self.wait > 0 else None,
        )

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools:
        """Nodes over the batch, the exact optimum now that drafting is paid for."""
        table, forecast = self._table, self._forecast
        assert table is not None and forecast is not None  # no selection without a plan
        size, _, depth, _, probability = candidates
        kept, self._expected = learned_selection(
            view.active,
            view.slo_class,
            size,
            depth,
            probability,
            KEEP,
            forecast.seen,
            forecast.total,
            forecast.scale,
            self._weight,
            self._base,
            LEAST,
            self._draft_s,
            table.verify_s,
            table.verify_joules,
            table.draft_watts,
            self.joule_s,
            view.power_cap_watts,
            view.limits.max_nodes,
            view.context_tokens,
            max(view.kv_total_tokens // max(view.kv_total_pages, 1), 1),
            view.kv_free_pages,
        )
        return kept

    def observe(self, outcome: Outcome) -> None:
        """What was accepted of what was expected, and how long it took."""
        if self._forecast is None or self._batch is None or self._table is None:
            return
        self._forecast.learn_acceptance(self._expected, outcome.accepted, outcome.ran)
        self._expected = self._nothing
        self._batch.observe(outcome, self._table)

    def weights(self, view: View, pace_s: float) -> Floats:
        """u [S], 0 in idle slots; `pace_s` is what a token takes as things stand."""
        return self.weighed(view, pace_s)[0]

    def weighed(self, view: View, pace_s: float) -> tuple[Floats, float]:
        """u, and the tokens a second that objectives which can still be kept need.

        Whoever weighs requests otherwise (`policies.steered`) does so here.
        """
        return slack_weights(
            view.active,
            view.tpot_objective_s,
            view.slack_tokens,
            view.remaining_tokens,
            pace_s,
            float(self.power),
            float(self.lax),
            float(self.lost),
            float(self.reach),
        )

    def _learn_anew(self, classes: int, limits: Limits) -> tuple[Forecast, GoodputBatch]:
        """Nothing is known yet of so many classes."""
        forecast = Forecast(classes, limits.max_depth, min(RANKS, limits.max_width))
        self._forecast, self._batch = forecast, GoodputBatch(classes, self.wait)
        return forecast, self._batch


def _warm_up() -> None:
    """Load the kernels, which must not be charged to a decision."""
    one, two, whole, nobody = np.zeros(1), np.zeros(2), np.zeros(1, np.int64), np.zeros(1, np.bool_)
    none, trees, inf = np.zeros((1, 1)), np.zeros((1, 1), np.int64), float("inf")
    layers, curves, prices = np.zeros((1, 1, 1)), np.zeros((4, 3)), (two + 1, two)
    price_table(
        curves, curves, curves[:3], curves[:2], 0.0, 0.0, nobody, whole, whole, 1, whole + 1
    )
    slack_weights(nobody, one, one, whole, 1.0, 1.0, 1.0, 1.0, 1.0)
    planned_shapes(
        layers, layers, one, PRIOR, FIRST, SIBLINGS, HISTORY_PRIOR, LEAST_FORECAST, nobody, whole,
        none, none, whole, 1, one, 1.0, whole + 1, *prices, two, np.zeros((1, 2)), 0.0, whole,
        AMORTISED, 0.0, inf,
    )  # fmt: skip
    drafting_s(whole, whole, two, two)
    learned_selection(
        nobody, whole, whole, trees, none, KEEP, layers, layers, one, one, 0.0, LEAST, 0.0, *prices,
        0.0, 0.0, inf, 1, whole, 1, 0,
    )  # fmt: skip
    Forecast(1, 1, 1).learn_acceptance(one, none > 0, nobody)
