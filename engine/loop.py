"""The engine loop: admit, prefill, view, plan, draft, select, verify, commit, observe.

It exists once. Environment, training, evaluation and load test all drive it through two calls:
`next_decision` brings the engine to the point where a controller must decide, `run_iteration` does
what it decided. All accounting uses the engine's own clock, which advances by measured work and
jumps over idle time; whatever the caller does between the two calls is never charged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.protocol import Backend, new_children, new_choices
from engine.checking import check_backend, check_requests
from engine.classes import ClassTable
from engine.committing import commit, read_tokens
from engine.drafting import draft, draft_failures, make_room, select
from engine.errors import UserError
from engine.kernels.beam import new_beam
from engine.kernels.walk import walk
from engine.ledger import Ledger
from engine.limits import clip_plan
from engine.orders import Key, promises_of
from engine.overload import Overload
from engine.prefilling import Chunk, admit_waiting, prefill, take_arrivals
from engine.profile.fallback import Fallback
from engine.profile.hardware_profile import HardwareProfile
from engine.profile.pricing import predicted_s, sized
from engine.protocol import Controller, Outcome, Plan, View
from engine.request import Request, RequestRecord, Status
from engine.scheduler import Scheduler
from engine.settings import DEFAULT_LIMITS, EngineSettings
from engine.state import new_slots, new_trees
from engine.stopping import Detokenize, StopStrings
from engine.telemetry import Energy, Meter, PowerMeter
from engine.viewing import build_view

if TYPE_CHECKING:
    from engine.snapshot_origin import Snapshot
    from engine.workload.disturbances import Disturbances

__all__ = ["DEFAULT_LIMITS", "Engine", "EngineSettings"]

COUNTERS = (
    "iterations",
    "request_iterations",
    "emitted",
    "drafted",
    "verified",
    "wasted",
    "clipped",
    "shrunk",
    "let_through",
    "prefilled",
    "preempted",
    "unpriced",
    "draft_failures",
)


class Engine:
    """One episode: a list of requests served on a backend."""

    def __init__(
        self,
        backend: Backend,
        requests: Sequence[Request],
        classes: ClassTable,
        settings: EngineSettings,
        unloaded_tpot_s: float,
        detokenize: Detokenize | None = None,
        profile: HardwareProfile | None = None,
        fallback: Fallback | None = None,
        power: Meter | None = None,
        stopwatch: Callable[[], float] | None = None,
        decision_s: float = 0.0,
        disturbances: Disturbances | None = None,
    ) -> None:
        """`detokenize` makes text of output tokens; needed where a request has stop strings.

        With a `profile` every step is predicted and plans can be priced; without one, `fallback`
        stands in for controllers that need it. `power` is a graphics card's meter, else it is the
        processor's. Work is timed by `stopwatch`, the process's own clock or a modelled one, which
        stands still while a controller thinks: then `decision_s` is charged for each of its plans.
        Of `disturbances` the loop acts on memory: pages are withdrawn; the view shows a power cap.
        """
        self.backend, self.classes, self.settings = backend, classes, settings
        self.limits, self.unloaded_tpot_s = settings.limits, unloaded_tpot_s
        self.stops = StopStrings(detokenize)
        self.profile, self.fallback = profile, fallback or Fallback()
        self.stopwatch, self.decision_s = stopwatch, decision_s
        self.disturbances = disturbances
        check_backend(backend, settings)
        check_requests(
            requests, classes, settings.context_tokens, backend.vocab_size, detokenize is not None
        )
        self.requests, self._ids = requests, {request.id for request in requests}
        self.slots = new_slots(1, self.limits, settings.capacity_tokens)
        self.trees = new_trees(1, self.limits)
        self.beam = new_beam(1, self.limits)
        self.children = new_children(1, self.limits)
        self.choices = new_choices(1, self.limits)
        self.scheduler = Scheduler(
            requests,
            len(classes.classes),
            settings.order,
            promises_of(classes, unloaded_tpot_s),
        )
        self.ledger = Ledger(self.slots, classes, unloaded_tpot_s)
        self.overload = Overload(
            settings.overload,
            self.ledger,
            self.scheduler,
            classes,
            unloaded_tpot_s,
            self.limits.max_depth,
        )
        self.power: Meter = power or PowerMeter()
        self.energy = Energy(0.0, self.power.model.idle_watts, self.power.is_measured)
        self.clock_s = 0.0
        self.iteration_s = 0.0
        self.prefill_tokens = settings.prefill_tokens
        self.max_running = self.limits.slots
        self.prefill_s = 0.0  # of the iteration under way, all rounds, as is `prefilled`, in tokens
        self.prefilled = 0
        self.chunks: list[Chunk] = []
        """Prompt tokens read in the iteration under way."""
        self.drafted_to = np.zeros(self.limits.slots, np.int64)
        """[S] context that the drafter has run; what lies behind it is the price of drafting."""
        self.start_s = self._admit_s = self._observe_s = 0.0
        self._decoding_since_s = 0.0  # start of the iteration under way, or of decoding in it
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._failures_before = draft_failures(backend)
        for slot in range(self.limits.slots):
            backend.release(slot)
        backend.pool.withdraw(0.0)  # the pool may be the one of the episode before

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the service classes."""
        return self.classes.names

    # -- to the decision point -----------------------------------------------------------------

    def next_decision(self) -> View | None:
        """Admit and prefill until some request decodes; None when the trace is served or cut."""
        self.start_s = self._decoding_since_s = self.clock_s - self._observe_s
        self.prefill_s = self._admit_s = 0.0
        self.prefilled = 0
        self.chunks = []
        self.power.begin()
        while self.clock_s < self.settings.horizon_s:
            begun = self.read()
            self.overload.update(self.clock_s)
            if self.disturbances is not None and self.disturbances.has("memory"):
                self.backend.pool.withdraw(self.disturbances.value("memory", self.clock_s))
            take_arrivals(self)
            admit_waiting(self)
            active, decoding = self.slots.active[0], self.slots.decoding[0]
            self._admit_s += self.spend(begun)
            if not active.any():
                if self.scheduler.next_arrival_s() == float("inf"):
                    return None
                # Nothing to serve: the clock jumps, and no work carries over the gap.
                at = min(self.scheduler.next_arrival_s(), self.settings.horizon_s)
                # Who came during the work just charged has come already: no clock goes back.
                self.clock_s = self.start_s = max(self.clock_s, at)
                self.prefill_s = self._admit_s = self._observe_s = 0.0
                self.prefilled = 0
                self.chunks = []
                continue
            somebody_decoded = decoding.any()
            if (active & ~decoding).any():
                prefill(self)
            if not somebody_decoded:  # so these prompts held nobody up
                self._decoding_since_s = self.clock_s
            if self.slots.decoding[0].any():
                begun = self.read()
                view = build_view(self)
                self._admit_s += self.spend(begun)
                self.power.pause()
                return view
        return None

    def read(self) -> float:
        """The stopwatch by which work is measured; what it counts from means nothing."""
        return perf_counter() if self.stopwatch is None else self.stopwatch()

    def spend(self, begun: float) -> float:
        """Advance the clock by the work done since the reading `begun`; returns its length."""
        spent = self.read() - begun
        self.clock_s += spent
        return spent

    # -- the decision and what follows ---------------------------------------------------------

    def run_iteration(self, view: View, controller: Controller) -> Outcome:
        """One iteration under `controller`: plan, draft, select, verify, commit, observe.

        Requests cancelled since the view was made take no part; with none left nothing is run.
        """
        self.power.resume()
        if controller.needs_profile and self.profile is None:
            controller = self.fallback.instead_of(controller)
            self.counters["unpriced"] += 1
        slots, trees = self.slots, self.trees
        decoding = slots.decoding.copy()
        slo_class = slots.slo_class[0].copy()
        begun = self.read()
        plan, clipped = clip_plan(
            controller.plan(view), self.limits, decoding[0], view.remaining_tokens
        )
        # What the controller thought after the last iteration belongs to this decision.
        decision_s = controller.decision_s + self.decision_s
        controller_s = self._observe_s + self.spend(begun) + decision_s
        self.clock_s += decision_s

        begun = self.read()
        plan = self.overload.spare(plan, decoding[0], self.clock_s)
        plan = sized(self, plan, decoding[0])
        plan, reserved, shrunk = make_room(self, plan, controller, decoding)
        predicted = predicted_s(self, plan, decoding[0])
        room_s = self.spend(begun)

        begun = self.read()
        self.backend.watch_divergence(controller.needs_divergence)
        controller_in_draft_s = draft(self, view, plan, controller, decoding)
        drafted = trees.size[0] > 0
        self.drafted_to[drafted] = slots.context[0, drafted]
        draft_s = self.spend(begun) - controller_in_draft_s
        controller_s += controller_in_draft_s

        begun = self.read()
        shrunk += select(self, view, plan, controller, decoding, reserved)
        select_s = self.spend(begun)

        begun = self.read()
        margin = np.asarray(plan.margin, float)[None]
        if decoding.any():
            self.backend.verify(decoding, margin, slots, trees, self.choices)
        verify_s = self.spend(begun)

        begun = self.read()
        failed = decoding & self.choices.failed
        decoding &= ~failed
        walk(decoding, self.choices, margin, slots, trees)
        stopped = read_tokens(self, decoding)
        self.backend.commit(decoding, slots, trees)
        # Tokens leave the engine here, so this is the time they are judged by.
        commit_s = self.spend(begun)
        begun = self.read()
        outcome = commit(self, decoding, slo_class, stopped)
        for slot in np.flatnonzero(failed[0]).tolist():
            self.end(slot, Status.FAILED)
        self._take_over(plan)
        commit_s += self.spend(begun)

        self.iteration_s = self.clock_s - self.start_s
        passes = len(self.chunks) + bool(outcome.ran.any())
        tokens = int(outcome.verified.sum()) + self.prefilled
        self.energy = self.power.end(self.iteration_s, tokens / max(passes, 1))
        outcome = outcome._replace(
            prefill_s=self.prefill_s,
            draft_s=draft_s,
            select_s=select_s,
            verify_s=verify_s,
            controller_s=controller_s,
            other_s=self._admit_s + room_s + commit_s,
            energy_joules=self.energy.joules,
            clipped=clipped,
            shrunk=shrunk,
            predicted_s=predicted,
            divergence=self.choices.divergence[0].copy() if controller.needs_divergence else None,
        )
        self._count(outcome)
        begun = self.read()
        controller.observe(outcome)
        self._observe_s = self.spend(begun)
        return outcome

    def _take_over(self, plan: Plan) -> None:
        """What the plan says about the prompts and the batch of the next iteration."""
        tokens, running = plan.prefill_tokens, plan.max_running
        self.prefill_tokens = self.settings.prefill_tokens if tokens is None else max(1, tokens)
        self.max_running = self.limits.slots if running is None else running

    def _count(self, outcome: Outcome) -> None:
        counters = self.counters
        ran, emitted = int(outcome.ran.sum()), int(outcome.accepted_length.sum())
        counters["iterations"] += 1
        counters["request_iterations"] += ran
        counters["emitted"] += emitted
        for name in ("drafted", "verified", "wasted", "let_through"):
            counters[name] += int(getattr(outcome, name).sum())
        counters["clipped"] += outcome.clipped
        counters["shrunk"] += outcome.shrunk
        counters["draft_failures"] = draft_failures(self.backend) - self._failures_before
        if ran:
            self.overload.observe(emitted / ran, self.clock_s - self._decoding_since_s)

    # -- how a request loses its slot ----------------------------------------------------------

    def places(self) -> dict[int, Key]:
        """By slot, where its request would stand in the order if it had to wait from now on."""
        emitted, scheduler = self.slots.emitted[0], self.scheduler
        return {
            slot: scheduler.key_if_put_back(request, bool(emitted[slot] > 0), self.clock_s)
            for slot, request in self.ledger.running.items()
        }

    def end(self, slot: int, status: Status) -> None:
        """The slot's request has ended: its record is written, slot and memory are free."""
        self.stops.forget(self.ledger.running[slot].id)
        self.ledger.finish(slot, self.clock_s, status)
        self._release(slot)

    def take_slot(self, slot: int, displaced: bool) -> None:
        """The slot's request waits again; what it has emitted is read anew when it is back.

        `displaced`: for want of memory, so that it goes before everybody who waits.
        """
        self.scheduler.put_back(self.ledger.park(slot, self.clock_s, displaced))
        self._release(slot)
        self.counters["preempted"] += 1

    def _release(self, slot: int) -> None:
        self.backend.release(slot)
        self.drafted_to[slot] = 0

    def cancel(self, request_id: int) -> bool:
        """Withdraw a request that is to come, waits or runs; False when it has ended already.

        Between two calls of the engine, or by `Request.cancel_at_s`. Raises UserError for an id
        that the engine was never given.
        """
        if request_id not in self._ids:
            raise UserError(
                f"request {request_id} is unknown to the engine; give the id of one of its "
                f"{len(self._ids)} requests"
            )
        slot = self.ledger.slot_of(request_id)
        if slot is not None:
            self.end(slot, Status.CANCELLED)
            return True
        request = self.scheduler.withdraw(request_id)
        if request is None:
            return False
        self.stops.forget(request_id)
        self.ledger.dismiss(request, Status.CANCELLED, max(self.clock_s, request.arrival_s))
        return True

    # -- whole episodes and results ------------------------------------------------------------

    def serve(
        self, controller: Controller, max_iterations: int | None = None
    ) -> list[RequestRecord]:
        """Serve the whole trace under one controller; records of all requests."""
        controller.reset(self.limits)
        while max_iterations is None or self.counters["iterations"] < max_iterations:
            view = self.next_decision()
            if view is None:
                break
            self.run_iteration(view, controller)
        return self.close_records()

    def snapshot(self) -> Snapshot:
        """All that an episode on replay is made of now (`engine.snapshot`); UserError on live."""
        from engine.snapshot import take  # deferred: it knows the replay backend

        return take(self)

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from there. Raises UserError where it was taken on something else."""
        from engine.snapshot import put_back

        put_back(self, snapshot)

    def records(self) -> list[RequestRecord]:
        """Requests that have ended so far."""
        return list(self.ledger.records)

    def close_records(self) -> list[RequestRecord]:
        """Ended requests, and those queued or running now as unfinished."""
        # Who came during the last iteration waits too, though nobody has looked since.
        self.scheduler.arrive(min(self.clock_s, self.settings.horizon_s))
        waiting = (entry.request for entry in self.scheduler.waiting)
        return self.ledger.close(waiting, self.clock_s)
