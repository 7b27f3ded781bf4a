"""What an exported controller's decision costs: view to plan at 64 requests, and its share of live.

View to plan is timed in a process of its own, on one core, as the engine asks for it on replay, and
only in iterations in which the controller decides: in the others it holds what it decided before.
Between two decisions the engine does its own work, as in serving, which likely empties caches. How
long it takes without is told by asking again and again about the last view, whose clock stands.
"""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.deciding import LIVE_BATCH, SLOTS, busy_server, on_live, on_replay, timed
from benchmarks.decision_cost import DECISIONS, QUICK_DECISIONS
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.learning_contest import found
from benchmarks.learning_runs import trained
from benchmarks.learning_subject import subjects
from benchmarks.replay_training import run_python
from engine.protocol import Controller, Limits, Plan, View
from policies import registry
from policies.delegate import Delegate, delegating
from policies.learned import LearnedController

BY_REQUEST = ("--policy", "ppo", "--observation", "per-request", "--decisions", "50000")
"""How a controller is trained that decides by request: its decision is timed, not judged."""
TIMING = """
import json
from benchmarks.learning_cost import decisions_us
print(json.dumps(decisions_us({spec!r}, {wanted})))
"""


def decision(bench: Bench, size: str) -> Result:
    """99th percentile of view to plan in microseconds, of decisions by class or by request."""
    run = subjects(bench, found(bench))[0] if size == "class" else _trained_by_request(bench)
    bench.say(f"deciding for {SLOTS} requests")
    wanted = QUICK_DECISIONS if bench.quick else DECISIONS
    told = json.loads(run_python(TIMING.format(spec=str(run), wanted=wanted), cores=1))
    plan_us, whole_us = np.array(told["asked"]).T
    again_us = np.array(told["again"])
    p99 = float(np.quantile(plan_us, 0.99))
    return Result(
        p99,
        f"{p99:.0f} µs",
        note=f"median {np.median(plan_us):.0f}; with selecting and observing p99 "
        f"{np.quantile(whole_us, 0.99):.0f}; {len(plan_us)} decisions; asked again and again "
        f"about one view, without the engine's work between: median {np.median(again_us):.0f}, "
        f"p99 {np.quantile(again_us, 0.99):.0f}",
        raw={
            "plan_us": plan_us.tolist(),
            "whole_us": whole_us.tolist(),
            "again_us": again_us.tolist(),
        },
    )


def share(bench: Bench, sets: str) -> Result:
    """Percent of an iteration on live that the exported controller takes, 16 requests."""
    controller = registry.make(str(subjects(bench, found(bench))[0]))
    watched = timed(delegating(Uncapped, controller)(controller))
    deciding, lasting = on_live(bench, sets, watched, lambda: watched.seconds)
    if not lasting:
        raise UnmeasuredError(f"no iteration served {LIVE_BATCH} requests")
    percent = 100 * sum(deciding) / sum(lasting)
    return Result(
        percent,
        f"{percent:.2f} %",
        note=f"{1e6 * np.mean(deciding):.0f} µs of {1e3 * np.mean(lasting):.0f} ms on average, "
        f"{len(lasting)} iterations",
        raw={"deciding_s": deciding, "iteration_s": lasting},
    )


class Uncapped(Delegate):
    """Plans as the controller, but that all slots are filled, since it is timed on them."""

    def plan(self, view: View) -> Plan:
        """The controller's, without its cap."""
        return self.controller.plan(view)._replace(max_running=None)


class Planned(Delegate):
    """An exported controller, and how long it took from view to plan when it last decided."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.plan_s, self.decided, self._asked = 0.0, False, 0
        self.view: View | None = None
        self._hold = controller.manifest.hold if isinstance(controller, LearnedController) else 1

    def plan(self, view: View) -> Plan:
        """What the controller plans, but that all slots are filled, since it is timed on them; it
        decides every `hold` iterations, the first time at once.
        """
        self.decided, self._asked = self._asked % self._hold == 0, self._asked + 1
        begun = perf_counter()
        plan = self.controller.plan(view)
        self.plan_s, self.view = perf_counter() - begun, view
        return plan._replace(max_running=None)

    def reset(self, limits: Limits) -> None:
        """The next plan is an episode's first."""
        super().reset(limits)
        self._asked = 0


def decisions_us(spec: str, wanted: int) -> dict[str, Any]:
    """Microseconds of decisions while all slots decode: `asked` by the engine [wanted, 2], view to
    plan and with all other calls, and `again` [wanted] about the last view.
    """
    controller = registry.make(spec)
    planned = delegating(Planned, controller)(controller)
    whole = timed(planned)

    def read() -> tuple[float, float] | None:
        return (1e6 * planned.plan_s, 1e6 * whole.seconds) if planned.decided else None

    asked = on_replay(*busy_server(), whole, read, wanted)
    return {"asked": asked, "again": _again(planned, wanted)}


def _again(planned: Planned, wanted: int) -> list[float]:
    """View to plan in microseconds, of the view that came last."""
    view = planned.view
    if view is None:
        raise UnmeasuredError("the engine asked for no decision")
    found: list[float] = []
    while len(found) < wanted:
        planned.plan(view)
        if planned.decided:
            found.append(1e6 * planned.plan_s)
    return found


def _trained_by_request(bench: Bench) -> Path:
    """A run whose policy decides by request. Raises UnmeasuredError where there is none yet."""
    try:
        return trained(bench, BY_REQUEST)
    except UnmeasuredError as error:
        raise UnmeasuredError(f"no per-request policy exported: {error}") from error
