"""Slack-priced: the analytic controller that a learned one must beat. Ours (ALGORITHMS.md §8).

AdaServe knows slack but its budget is set by hand; vLLM prices a budget but knows no slack. Here
every iteration maximises, by the hardware profile's seconds t and joules,

    Σ_r u_r · E[tokens of r] / (t + λ · joules)

over depth and width of each request before it drafts (by a forecast of what nodes bring,
`policies.forecast`), and over the nodes to verify once they are drafted. u_r grows as slack
shrinks. With R tokens still allowed, request r keeps its objective τ if a token takes it no longer
than τ · (R + slack) / R from now on; `pace` is what it would take without drafts, prompts included:

    pressure_r = pace · R / (τ · (R + slack)),    u_r = max(min(pressure_r, reach)^power, lax)

Above `reach` the objective is lost, as it is without time left, and u_r = `lost`: a floor, not 0.
Who decodes gets a token in every iteration whatever u_r is, which is the least progress.

Three things go beyond the sketch, and each may be switched off:

- A drafter that has not run for some tokens must catch up, which pays back over the coming
  iterations: the plan charges 1 / `AMORTISED` of it.
- `chunks`: prompts are read in pieces of the length that costs least a token by the profile.
- `wait`: no more requests run at once than meet the most objectives (`policies.goodput_batch`), and
  a request waits at most about so many unloaded token times for it.

A larger u_r never lowers the tokens a second expected of r, the others' being equal, nor, where
every node costs alike, its nodes (`tests/test_slack_priced.py`).

Probe rule: after `PROBE` iterations without a draft the request of most weight drafts a chain of
two, since whatever is forecast may have changed.
"""

from __future__ import annotations

import numpy as np

from engine.errors import UserError
from engine.kernels.forecast import node_values
from engine.kernels.priced_select import priced_select
from engine.kernels.priced_sweep import sweep_shapes
from engine.protocol import (
    PROMPT_CHUNKS,
    Bools,
    Candidates,
    Controller,
    Floats,
    Ints,
    Limits,
    Outcome,
    Plan,
    PriceTable,
    Tabulated,
    View,
)
from policies.forecast import Forecast
from policies.goodput_batch import GoodputBatch
from policies.spelling import spelled

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

    def __init__(
        self,
        power: float = 2.0,
        lax: float = 0.25,
        lost: float = 0.25,
        reach: float = 3.0,
        joule_s: float = 0.0,
        chunks: bool = True,
        wait: float = 600.0,
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
        self.joule_s, self.chunks, self.wait = joule_s, chunks, wait
        self.reset(Limits())

    def reset(self, limits: Limits) -> None:
        """A new episode begins."""
        self._forecast: Forecast | None = None
        self._batch: GoodputBatch | None = None
        self._table: PriceTable | None = None
        self._weight = np.zeros(limits.slots)
        self._expected = np.zeros(limits.max_depth)  # drafts by layer, of the iteration under way
        self._draft_s = 0.0  # of the plan
        self._undrafted = 0  # iterations
        _warm_up()

    def plan(self, view: View) -> Plan:
        """Depth and nodes by request, one width for all, and what is read and run next to it."""
        if not isinstance(view.pricing, Tabulated):
            raise UserError(
                f"{self.name} needs a hardware profile; measure one with `python -m engine.profile`"
            )
        limits = view.limits
        if self._forecast is None or self._batch is None:
            ranks = min(RANKS, limits.max_width)
            classes = len(view.class_names)
            self._forecast = Forecast(classes, limits.max_depth, ranks)
            self._batch = GoodputBatch(classes, self.wait)
        widths = np.array([w for w in WIDTHS if w <= limits.max_width])
        most = np.where(view.active, limits.max_nodes, 0)
        table = view.pricing.table(min(int(most.sum()), MOST_NODES), widths)
        self._table = table
        self._weight = self.weights(view, self._batch.ordinary_pace_s(view, table))
        behind = np.maximum(table.undrafted_tokens, 1)
        _, width, taken, depth, nodes = sweep_shapes(
            self._values(view, self._forecast),
            float(self._weight.sum()),
            widths,
            table.verify_s,
            table.verify_joules,
            table.draft_first_s,
            table.draft_next_s,
            table.draft_watts,
            1 + (behind - 1) / AMORTISED,
            most,
            self.joule_s,
            view.power_cap_watts,
        )
        self._undrafted = 0 if taken else self._undrafted + 1
        if self._undrafted >= PROBE:
            slot = int(np.argmax(self._weight))
            left = max(int(view.remaining_tokens[slot]) - 1, 0)
            depth[slot] = nodes[slot] = min(2, limits.max_depth, left)
            self._undrafted = 0
        width = max(width, 1)
        self._draft_s = _draft_s(table, int(np.searchsorted(widths, width)), depth)
        cheapest = int(np.argmin(table.prefill_s / np.array(PROMPT_CHUNKS)))
        return Plan(
            depth=depth,
            width=np.full(limits.slots, width),
            nodes=nodes,
            margin=np.ones(limits.slots),
            node_budget=limits.slots * limits.max_nodes,
            prefill_tokens=PROMPT_CHUNKS[cheapest] if self.chunks else None,
            max_running=self._batch.size(view, table) if self.wait > 0 else None,
        )

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools:
        """Nodes over the batch, the exact optimum now that drafting is paid for."""
        table, forecast = self._table, self._forecast
        assert table is not None and forecast is not None  # no selection without a plan
        weight = np.where(view.active, self._weight, 0.0)
        forecast.learn_trees(view.active, view.slo_class, candidates)
        page = max(view.kv_total_tokens // max(view.kv_total_pages, 1), 1)
        held = view.context_tokens + 1
        kept, self._expected = priced_select(
            weight,
            float(weight.sum()),
            forecast.scale(),
            LEAST,
            self._draft_s,
            self._draft_s * table.draft_watts,
            table.verify_s,
            table.verify_joules,
            self.joule_s,
            view.power_cap_watts,
            np.full(len(weight), view.limits.max_nodes),
            -(-held // page) * page - held,
            page,
            view.kv_free_pages,
            candidates.size,
            candidates.depth,
            candidates.probability,
        )
        return kept

    def observe(self, outcome: Outcome) -> None:
        """What was accepted of what was expected, and how long it took."""
        if self._forecast is None or self._batch is None or self._table is None:
            return
        accepted = outcome.accepted & outcome.ran[:, None]
        self._forecast.learn_acceptance(self._expected, accepted)
        self._expected = np.zeros_like(self._expected)
        self._batch.observe(outcome, self._table)

    def weights(self, view: View, pace_s: float) -> Floats:
        """u [S], 0 in idle slots; `pace_s` is what a token takes as things stand."""
        bound = view.active & np.isfinite(view.tpot_objective_s)
        objective_s = np.where(bound, view.tpot_objective_s, 1.0)
        left = np.maximum(view.remaining_tokens, 1)
        allowed_s = objective_s * (left + view.slack_tokens) / left
        pressure = pace_s / np.maximum(allowed_s, 1e-12)
        weight = np.maximum(np.minimum(pressure, self.reach) ** self.power, self.lax)
        weight = np.where(pressure > self.reach, self.lost, weight)
        return np.where(view.active, np.where(bound, weight, self.lax), 0.0)

    def _values(self, view: View, forecast: Forecast) -> Floats:
        """u · expected tokens [S, D, W] of the nodes of a tree, 0 where none can be.

        A request that accepts first drafts more often than the others does so in every layer.
        """
        first, offered = view.accepted[:, 0], view.proposed[:, 0]
        usual = (first[view.active].sum() + HISTORY_PRIOR) / (
            offered[view.active].sum() + 2 * HISTORY_PRIOR
        )
        likeness = (first + HISTORY_PRIOR * usual) / ((offered + HISTORY_PRIOR) * usual)
        return node_values(
            forecast.by_class(),
            view.slo_class,
            self._weight,
            np.minimum(np.maximum(likeness, 0.5), 1.5),
            view.remaining_tokens,
            LEAST_FORECAST,
        )


def _draft_s(table: PriceTable, width: int, depth: Ints) -> float:
    """Seconds of drafting to these depths [S], in beams of the table's width at `width`."""
    drafting = depth > 0
    if not drafting.any():
        return 0.0
    rows = float(np.maximum(table.undrafted_tokens, 1)[drafting].sum())
    first_s = float(table.draft_first_s[0] + table.draft_first_s[1] * rows)
    further = [int((depth >= step).sum()) for step in range(2, int(depth.max()) + 1)]
    return first_s + float(table.draft_next_s[width, further].sum())


def _warm_up() -> None:
    """Load the kernels, which must not be charged to a decision."""
    two, one, whole = np.zeros(2), np.zeros(1), np.zeros(1, np.int64)
    inf, trees = float("inf"), np.zeros((1, 1), np.int64)
    prices = two + 1, two
    sweep_shapes(
        np.zeros((1, 1, 1)), 1.0, whole + 1, *prices, two, np.zeros((1, 2)), 0.0, one, whole, 0.0,
        inf,
    )  # fmt: skip
    priced_select(
        one, 1.0, one + 1, LEAST, 0.0, 0.0, *prices, 0.0, inf, whole, whole, 1, 0, whole, trees,
        np.zeros((1, 1)),
    )  # fmt: skip
    forecast = Forecast(1, 1, 1)
    nobody = np.zeros(1, np.bool_)
    forecast.learn_trees(nobody, whole, Candidates(whole, trees, trees, trees, np.zeros((1, 1))))
    node_values(forecast.by_class(), whole, one, one, whole, LEAST_FORECAST)
