"""The engine loop: admit, prefill, view, plan, draft, select, verify, commit, observe.

It exists once. Environment, training, evaluation and load test all drive it through two calls:
`next_decision` brings the engine to the point where a controller must decide, `run_iteration` does
what it decided. All accounting uses the engine's own clock, which advances by measured work and
jumps over idle time; whatever the caller does between the two calls is never charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from engine.backends.protocol import Backend, new_children, new_choices
from engine.classes import ClassTable
from engine.kernels.beam import grow, new_beam
from engine.kernels.commit import commit_tokens, record_acceptance
from engine.kernels.select import close_under_parents, keep_best, rank_candidates
from engine.kernels.walk import accepted_within, walk
from engine.ledger import Ledger
from engine.limits import clip_plan, mask_of
from engine.protocol import (
    NODE_TIERS,
    Bools,
    Candidates,
    Controller,
    Limits,
    Outcome,
    Plan,
    View,
)
from engine.request import Request, RequestRecord
from engine.scheduler import Scheduler
from engine.state import new_slots, new_trees
from engine.telemetry import Energy, PowerMeter
from engine.viewing import build_view

DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class EngineSettings:
    """What the engine decides by itself."""

    limits: Limits = DEFAULT_LIMITS
    capacity_tokens: int = 1024
    """Cache rows a slot: prompt, output and the candidate tree together."""
    prefill_tokens: int = 64
    """Prompt tokens processed before each decoding step, until a plan says otherwise."""
    horizon_s: float = float("inf")
    """The episode is cut when the clock passes this."""

    @property
    def context_tokens(self) -> int:
        """Longest prompt and output together; behind them the tree needs rows of its own."""
        return self.capacity_tokens - self.limits.max_nodes - 1


class Engine:
    """One episode: a list of requests served on a backend."""

    def __init__(
        self,
        backend: Backend,
        requests: Sequence[Request],
        classes: ClassTable,
        settings: EngineSettings,
        unloaded_tpot_s: float,
    ) -> None:
        self.backend, self.classes, self.settings = backend, classes, settings
        self.limits, self.unloaded_tpot_s = settings.limits, unloaded_tpot_s
        for request in requests:
            request.check(settings.context_tokens)
        self.slots = new_slots(1, self.limits, settings.capacity_tokens)
        self.trees = new_trees(1, self.limits)
        self.beam = new_beam(1, self.limits)
        self.children = new_children(1, self.limits)
        self.choices = new_choices(1, self.limits)
        self.scheduler = Scheduler(requests, len(classes.classes))
        self.ledger = Ledger(self.slots, classes, unloaded_tpot_s)
        self.power = PowerMeter()
        self.energy = Energy(0.0, self.power.model.idle_watts, self.power.is_measured)
        self.clock_s = 0.0
        self.iteration_s = 0.0
        self.prefill_tokens = settings.prefill_tokens
        self.max_running = self.limits.slots
        self._start_s = self._prefill_s = self._admit_s = 0.0
        self._observe_s = 0.0
        self._prefilled = 0
        self.counters = dict.fromkeys(
            (
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
            ),
            0,
        )
        for slot in range(self.limits.slots):
            backend.release(slot)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the service classes."""
        return self.classes.names

    # -- to the decision point -----------------------------------------------------------------

    def next_decision(self) -> View | None:
        """Admit and prefill until some request decodes; None when the trace is served or cut."""
        self._start_s = self.clock_s - self._observe_s
        self._prefill_s = self._admit_s = 0.0
        self._prefilled = 0
        self.power.begin()
        while self.clock_s < self.settings.horizon_s:
            begun = perf_counter()
            self.scheduler.arrive(self.clock_s)
            self._admit()
            active, decoding = self.slots.active[0], self.slots.decoding[0]
            self._admit_s += self._spend(begun)
            if not active.any():
                if self.scheduler.next_arrival_s() == float("inf"):
                    return None
                # Nothing to serve: the clock jumps, and no work carries over the gap.
                at = min(self.scheduler.next_arrival_s(), self.settings.horizon_s)
                self.clock_s = self._start_s = at
                self._prefill_s = self._admit_s = self._observe_s = 0.0
                self._prefilled = 0
                continue
            if (active & ~decoding).any():
                self._prefill()
            if self.slots.decoding[0].any():
                begun = perf_counter()
                view = build_view(self)
                self._admit_s += self._spend(begun)
                self.power.pause()
                return view
        return None

    def _spend(self, begun: float) -> float:
        """Advance the clock by the work done since `begun`; returns its length."""
        spent = perf_counter() - begun
        self.clock_s += spent
        return spent

    def _admit(self) -> None:
        active = self.slots.active[0]
        free = np.flatnonzero(~active).tolist()
        for slot, request in self.scheduler.admit(free, int(active.sum()), self.max_running):
            self.ledger.admit(slot, request, self.clock_s)

    def _prefill(self) -> None:
        """Process prompts in order of request until this iteration's token budget is spent."""
        slots = self.slots
        left = self.prefill_tokens - self._prefilled
        if left <= 0:  # no request decodes yet: another round of the same budget
            left = self.prefill_tokens
            self._prefilled = 0
        waiting = np.flatnonzero(slots.active[0] & ~slots.decoding[0])
        for slot in waiting[np.argsort(slots.request[0][waiting])].tolist():
            begun = perf_counter()
            start, end = int(slots.prefilled[0, slot]), int(slots.prompt_tokens[0, slot])
            end = min(end, start + left)
            token = self.backend.prefill(slot, slots, end)
            slots.prefilled[0, slot] = slots.context[0, slot] = end
            self._prefill_s += self._spend(begun)
            self._prefilled += end - start
            self.counters["prefilled"] += end - start
            left -= end - start
            if end == slots.prompt_tokens[0, slot] and self.ledger.first_token(
                slot, token, self.clock_s
            ):
                self.backend.release(slot)
            if left <= 0:
                break

    # -- the decision and what follows ---------------------------------------------------------

    def run_iteration(self, view: View, controller: Controller) -> Outcome:
        """One iteration under `controller`: plan, draft, select, verify, commit, observe."""
        self.power.resume()
        slots, trees = self.slots, self.trees
        decoding = slots.decoding.copy()
        slo_class = slots.slo_class[0].copy()
        begun = perf_counter()
        plan, clipped = clip_plan(
            controller.plan(view), self.limits, decoding[0], view.remaining_tokens
        )
        # What the controller thought after the last iteration belongs to this decision.
        controller_s = self._observe_s + self._spend(begun) + controller.decision_s
        self.clock_s += controller.decision_s

        begun = perf_counter()
        trees.size[:] = 0
        controller_in_draft_s = self._draft(view, plan, controller, decoding)
        draft_s = self._spend(begun) - controller_in_draft_s
        controller_s += controller_in_draft_s

        begun = perf_counter()
        shrunk = self._select(view, plan, controller, decoding)
        select_s = self._spend(begun)

        begun = perf_counter()
        margin = np.asarray(plan.margin, float)[None]
        self.backend.verify(decoding, margin, slots, trees, self.choices)
        verify_s = self._spend(begun)

        begun = perf_counter()
        walk(decoding, *self.choices, margin, slots, trees)
        self.backend.commit(decoding, slots, trees)
        # Tokens leave the engine here, so this is the time they are judged by.
        commit_s = self._spend(begun)
        begun = perf_counter()
        outcome = self._commit(decoding, slo_class)
        self._take_over(plan)
        commit_s += self._spend(begun)

        self.iteration_s = self.clock_s - self._start_s
        tokens = int(outcome.verified.sum()) + self._prefilled
        self.energy = self.power.end(self.iteration_s, tokens)
        outcome = outcome._replace(
            prefill_s=self._prefill_s,
            draft_s=draft_s,
            select_s=select_s,
            verify_s=verify_s,
            controller_s=controller_s,
            other_s=self._admit_s + commit_s,
            energy_joules=self.energy.joules,
            clipped=clipped,
            shrunk=shrunk,
        )
        self._count(outcome)
        begun = perf_counter()
        controller.observe(outcome)
        self._observe_s = self._spend(begun)
        return outcome

    def _take_over(self, plan: Plan) -> None:
        """What the plan says about the prompts and the batch of the next iteration."""
        prefill, running = plan.prefill_tokens, plan.max_running
        self.prefill_tokens = self.settings.prefill_tokens if prefill is None else max(1, prefill)
        self.max_running = self.limits.slots if running is None else running

    def _draft(self, view: View, plan: Plan, controller: Controller, decoding: Bools) -> float:
        """Grow candidate trees step by step; returns the time spent in `controller.extend`."""
        drafting = decoding & (plan.depth[None] >= 1)
        if not drafting.any():
            return 0.0
        width = plan.width[None]
        asks = type(controller).extend is not Controller.extend
        controller_s = 0.0
        self.backend.draft_first(drafting, self.slots, self.children)
        grow(1, drafting, width, *self.children, self.trees, self.beam)
        for step in range(2, int(plan.depth.max()) + 1):
            drafting &= plan.depth[None] >= step
            if asks:
                begun = perf_counter()
                answer = controller.extend(view, plan, step - 1, self._candidates())
                controller_s += perf_counter() - begun
                if answer is not None:
                    drafting &= mask_of("extend", answer, plan.depth.shape)[None]
            self.beam.size[~drafting] = 0
            if not drafting.any():
                break
            self.backend.draft_next(step - 1, self.slots, self.trees, self.beam, self.children)
            grow(step, drafting, width, *self.children, self.trees, self.beam)
        return controller_s

    def _select(self, view: View, plan: Plan, controller: Controller, decoding: Bools) -> int:
        """Mark the kept nodes; returns how many had to be dropped."""
        rank_candidates(decoding, self.trees)
        budget = np.array([plan.node_budget])
        mask = controller.select(view, plan, self._candidates())
        if mask is None:
            return int(keep_best(decoding, plan.nodes[None], budget, self.trees)[0])
        self.trees.kept[0] = mask_of("select", mask, self.trees.kept[0].shape)
        return int(close_under_parents(decoding, self.limits.max_nodes, self.trees)[0])

    def _candidates(self) -> Candidates:
        trees = self.trees
        return Candidates(
            trees.size[0], trees.parent[0], trees.depth[0], trees.token[0], trees.probability[0]
        )

    def _commit(self, decoding: Bools, slo_class: np.ndarray) -> Outcome:
        """Write tokens and ledger; the outcome without its times."""
        slots, trees, limits = self.slots, self.trees, self.limits
        shape = (1, limits.slots)
        proposed = np.zeros((*shape, limits.max_depth), np.bool_)
        accepted = np.zeros_like(proposed)
        valid = np.zeros(shape, np.int64)
        done = np.zeros(shape, np.bool_)
        within = np.zeros((*shape, limits.max_depth + 1, len(NODE_TIERS)), np.int64)
        record_acceptance(decoding, slots, trees, proposed, accepted)
        accepted_within(decoding, np.array(NODE_TIERS), trees, within)
        commit_tokens(decoding, np.array([self.clock_s]), slots, trees, valid, done)
        verified = (trees.kept[0].sum(1) + 1) * decoding[0]
        drafted = trees.size[0] * decoding[0]
        for slot in np.flatnonzero(done[0]).tolist():
            self.ledger.finish(slot, self.clock_s)
            self.backend.release(slot)
        return Outcome(
            ran=decoding[0],
            slo_class=slo_class,
            accepted_length=trees.accepted_length[0].copy(),
            drafted=drafted,
            verified=verified,
            wasted=(drafted - trees.path_length[0]) * decoding[0],
            let_through=trees.let_through[0].copy(),
            proposed=proposed[0],
            accepted=accepted[0],
            accepted_within=within[0],
            finished=done[0],
            valid_tokens=valid[0],
            start_s=self._start_s,
            prefill_s=0.0,
            draft_s=0.0,
            select_s=0.0,
            verify_s=0.0,
            controller_s=0.0,
            other_s=0.0,
            energy_joules=0.0,
            memory_bytes=self.backend.memory_bytes(),
            clipped=0,
            shrunk=0,
        )

    def _count(self, outcome: Outcome) -> None:
        counters = self.counters
        counters["iterations"] += 1
        counters["request_iterations"] += int(outcome.ran.sum())
        counters["emitted"] += int(outcome.accepted_length.sum())
        for name in ("drafted", "verified", "wasted", "let_through"):
            counters[name] += int(getattr(outcome, name).sum())
        counters["clipped"] += outcome.clipped
        counters["shrunk"] += outcome.shrunk

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

    def records(self) -> list[RequestRecord]:
        """Requests that have ended so far."""
        return list(self.ledger.records)

    def close_records(self) -> list[RequestRecord]:
        """Ended requests, and those queued or running now as unfinished."""
        # Who came during the last iteration waits too, though nobody has looked since.
        self.scheduler.arrive(min(self.clock_s, self.settings.horizon_s))
        return self.ledger.close(self.scheduler.waiting, self.clock_s)
