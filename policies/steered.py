"""Slack-priced with its prices set from outside: a learned policy steers it, it selects the nodes.

What may be set are factors, and with all of them 1 it is `policies.slack_priced` to the last bit:

- `weight` by class: on the worth u of a request's tokens, so on who gets drafts when not all can;
- `reading`: on the prompt tokens that are read before a step, so on how long those who decode are
  held up for those who come;
- `running`: the share of the slots that may be held, so on how large a batch grows. Slack-priced
  fills all of them unless asked not to; those beyond wait.

The last two are what slack-priced cannot know by itself: they trade those who run against those who
wait, and what is best hangs on the load to come.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from engine.protocol import Floats, Ints, Limits, Plan, View
from policies.actions import Actor, PlanByClass, most_running
from policies.price_actions import PriceActions, Prices
from policies.slack_priced import SlackPriced


class Steered(SlackPriced, Actor):
    """Slack-priced under prices that hold until the next decision."""

    def __init__(self, table: PriceActions) -> None:
        """`table` says which prices there are."""
        self.table = table
        super().__init__()
        self.name = "steered"

    def reset(self, limits: Limits) -> None:
        """A new episode begins: nothing learned, all prices neutral."""
        super().reset(limits)
        self._learn_anew(len(self.table.class_names), limits)
        self._planned: tuple[Ints, ...] | None = None
        self.set_prices(self.table.decode(self.table.neutral))

    def set_prices(self, prices: Prices) -> None:
        """Let these prices hold from now on."""
        self.prices = prices
        self._is_weighed = bool((prices.weight != 1.0).any())

    def decide(self, action: Ints) -> int:
        """Let the prices of this action hold; all classes see those that are not by class."""
        before = self.prices
        self.set_prices(self.table.decode(action))
        if before[1:] != self.prices[1:]:
            return len(before.weight)
        return int(np.count_nonzero(before.weight != self.prices.weight))

    def weighed(self, view: View, pace_s: float) -> tuple[Floats, float]:
        """u times the factor of the request's class, and the tokens a second that are needed."""
        weight, needed_per_s = super().weighed(view, pace_s)
        if self._is_weighed:
            weight *= self.prices.weight[np.where(view.active, view.slo_class, 0)]
        return weight, needed_per_s

    def plan(self, view: View) -> Plan:
        """Slack-priced's plan under the prices."""
        plan = super().plan(view)
        slo_class = np.where(view.active, view.slo_class, -1)
        self._planned = slo_class, plan.depth.copy(), plan.width.copy(), plan.nodes.copy()
        _, reading, running = self.prices
        if reading != 1.0 and plan.prefill_tokens is not None:
            plan = plan._replace(prefill_tokens=max(round(reading * plan.prefill_tokens), 1))
        if running < 1.0:
            most = most_running(running, view.limits.slots)
            given = plan.max_running
            plan = plan._replace(max_running=most if given is None else min(given, most))
        return plan

    @property
    def previous(self) -> PlanByClass:
        """Means over the requests of a class in the latest plan; of nobody, speculation off."""
        off = self.table.off()
        if self._planned is None:
            return off
        slo_class, *parts = self._planned
        runs = slo_class >= 0
        of, classes = slo_class[runs], len(self.table.class_names)
        count = np.bincount(of, minlength=classes)
        means = (
            np.where(
                count > 0,
                np.bincount(of, part[runs], minlength=classes) / np.maximum(count, 1),
                nobody,
            )
            for part, nobody in zip(parts, off, strict=False)
        )
        depth, width, nodes = (cast(Ints, mean) for mean in means)
        return PlanByClass(depth, width, nodes, off.margin)
