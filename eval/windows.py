"""A run over time: SLO-valid tokens, met and missed requests and changes of action, by window.

`TimelineObserver` notes events while a run goes on; `Timeline.series` cuts a stretch of the
engine's clock into windows. What a series says about a shift is `eval.adaptation`'s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from engine.errors import UserError
from engine.protocol import Bools, Controller, Floats, Ints, Limits, Outcome, Plan, View
from engine.request import RequestRecord
from eval.emissions import emitted_at_s
from policies.delegate import Delegate, delegating

if TYPE_CHECKING:
    from engine.loop import Engine

WINDOW_S = 1.0


class Series(NamedTuple):
    """Windows [W] end to end from `start_s`, each half open, `window_s` long."""

    start_s: float
    window_s: float
    valid_tps: Floats
    """SLO-valid tokens per second, first tokens included."""
    iterations: Ints
    judged: Ints
    """Requests with an objective that ended."""
    violations: Ints
    """Those of them that missed it."""
    changes: Floats
    """Changes of action, as shares of the running requests, summed over the iterations."""

    @property
    def attainment(self) -> Floats:
        """Share of the requests ended in a window that met their objectives, nan where none did."""
        return attained(self.judged, self.violations)

    @property
    def churn_per_s(self) -> Floats:
        """Changes of action per second."""
        return self.changes / self.window_s


def attained(judged: ArrayLike, violations: ArrayLike) -> Floats:
    """Share of those `judged` [W] that are no violations [W]; nan where none was judged."""
    ended = np.asarray(judged, np.float64)
    met = ended - np.asarray(violations)
    return np.divide(met, ended, out=np.full(len(ended), np.nan), where=ended > 0)


@dataclass(frozen=True)
class Timeline:
    """Events of a run, [n] each: when, and how much of it."""

    valid_at_s: Floats
    valid_tokens: Ints
    iteration_at_s: Floats
    changes: Floats  # [iterations]
    judged_at_s: Floats
    missed: Bools

    def series(self, start_s: float, end_s: float, window_s: float = WINDOW_S) -> Series:
        """The whole windows between two times; what is left at the end belongs to none.

        Raises UserError where not one window fits.
        """
        count = math.floor((end_s - start_s) / window_s + 1e-9) if window_s > 0 else 0
        if count < 1:
            raise UserError(
                f"a window of {window_s:g} s between {start_s:g} and {end_s:g} s: none fits; "
                "expected a shorter one, above 0"
            )
        edges_s = start_s + window_s * np.arange(count + 1)

        def total(at_s: Floats, amounts: Floats) -> Floats:
            window = np.searchsorted(edges_s, at_s, side="right") - 1
            inside = (window >= 0) & (window < count)
            return np.bincount(window[inside], amounts[inside], count).astype(np.float64)

        def number(at_s: Floats, which: Bools | None = None) -> Ints:
            chosen = at_s if which is None else at_s[which]
            return total(chosen, np.ones(len(chosen))).astype(np.int64)

        return Series(
            start_s=start_s,
            window_s=window_s,
            valid_tps=total(self.valid_at_s, self.valid_tokens.astype(np.float64)) / window_s,
            iterations=number(self.iteration_at_s),
            judged=number(self.judged_at_s),
            violations=number(self.judged_at_s, self.missed),
            changes=total(self.iteration_at_s, self.changes),
        )


class Listened(Delegate):
    """Passes on what a controller decides and remembers its latest plan."""

    latest: Plan | None = None

    def reset(self, limits: Limits) -> None:
        """A new episode begins."""
        self.latest = None
        super().reset(limits)

    def plan(self, view: View) -> Plan:
        """What the controller plans."""
        self.latest = plan = self.controller.plan(view)
        return plan


def listen(controller: Controller) -> Listened:
    """The controller, with its latest plan to be looked at."""
    return delegating(Listened, controller)(controller)


class TimelineObserver:
    """An observer that makes a `Timeline`.

    An action is what is planned for a request: depth, width, nodes and margin. It changes when the
    plan for a request that decoded in the iteration before differs; a controller that changes all
    trees at once makes one change. Without `listened` no changes are seen.
    """

    def __init__(self, listened: Listened | None = None) -> None:
        self.listened = listened
        self._before: tuple[Bools, Ints, Floats] | None = None
        self._valid: list[tuple[float, int]] = []
        self._iterations: list[tuple[float, float]] = []
        self._judged: list[tuple[float, bool]] = []

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Tokens in time, and whether the plan changed."""
        at_s = emitted_at_s(outcome)
        self._valid.append((at_s, int(outcome.valid_tokens.sum())))
        self._iterations.append((at_s, self._changed(view)))

    def on_record(self, record: RequestRecord) -> None:
        """Its first token, which came from its prompt and is always in time, and how it ended."""
        if not math.isnan(record.first_token_s):
            self._valid.append((record.first_token_s, 1))
        if record.has_objective:
            self._judged.append((record.finish_s, not record.attained))

    def close(self) -> None:
        """Nothing is written."""

    def timeline(self) -> Timeline:
        """What was noted so far."""
        return Timeline(
            valid_at_s=np.array([at_s for at_s, _ in self._valid], np.float64),
            valid_tokens=np.array([tokens for _, tokens in self._valid], np.int64),
            iteration_at_s=np.array([at_s for at_s, _ in self._iterations], np.float64),
            changes=np.array([changed for _, changed in self._iterations], np.float64),
            judged_at_s=np.array([at_s for at_s, _ in self._judged], np.float64),
            missed=np.array([missed for _, missed in self._judged], np.bool_),
        )

    def _changed(self, view: View) -> float:
        plan = None if self.listened is None else self.listened.latest
        if plan is None:
            return 0.0
        action = np.array([plan.depth, plan.width, plan.nodes, plan.margin])
        before, self._before = self._before, (view.active, view.request, action)
        if before is None:
            return 0.0
        active, request, earlier = before
        differs = (earlier != action).any(axis=0)
        if not differs.any():
            return 0.0
        stayed = active & view.active & (request == view.request)
        return float(differs[stayed].mean()) if stayed.any() else 0.0
