"""Serving metrics by class, counted from outcomes and records, read as Prometheus text.

Names and meanings stand in `metric_families.py`. Times are those of the engine's clock. A tree's
siblings count as draft tokens, as every token sent to verification does.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engine.atomic_write import write_named
from engine.loop import Engine
from engine.nvml import CardReading
from engine.observability.exposition import Counter, exposition
from engine.observability.metric_families import ServingFamilies
from engine.protocol import Ints, Outcome, View
from engine.request import RequestRecord, Status

GAUGE_WINDOW = 40  # iterations over which SGLang averages its speculation gauges
FALLBACKS = {"drafter_failed": "draft_failures", "no_profile": "unpriced"}  # the engine's counters
PHASES = ("prefill", "draft", "select", "verify", "controller", "other")


class ServingMetrics(ServingFamilies):
    """Observer that counts; `text` is what a scrape gets, `close` writes it to `path`.

    `constant` labels, such as `{"model_name": "..."}`, stand on every sample.
    """

    def __init__(self, path: Path | None = None, constant: dict[str, str] | None = None) -> None:
        super().__init__()
        self.path, self.constant = path, constant or {}
        self._class_names: tuple[str, ...] = ()
        # By request: when it last emitted, for the gaps between emissions.
        self._emitted_at_s: dict[int, float] = {}
        self._engine: Engine | None = None  # of the episode under way
        self._fallbacks_told: dict[str, int] = {}  # of its fallbacks, those counted so far
        self._window = np.zeros(4)  # iterations, verifications, drafts verified, drafts accepted

    def text(self) -> str:
        """All series in the Prometheus text format."""
        return exposition(self.families, self.constant)

    def close(self) -> None:
        """Write the text."""
        if self.path is not None:
            write_named(self.path, self.text())

    # -- an iteration --------------------------------------------------------------------------

    def on_iteration(self, engine: Engine, view: View, outcome: Outcome) -> None:
        """Add what the iteration brought."""
        self._class_names = engine.class_names
        self._set_load(engine, view)
        self._count_emissions(engine, view, outcome)
        self._count_drafts(outcome)
        self.iterations.add(1)
        for phase in PHASES:
            self.phase.add(getattr(outcome, f"{phase}_s"), phase)
        if engine.profile is not None:
            self.predicted.add(outcome.predicted_s)
            self.prediction_error.observe(abs(outcome.prediction_error))
        source = "measured" if engine.energy.is_measured else "modelled"
        self.energy.add(outcome.energy_joules, source)
        if engine.power.card is not None:
            self._set_card(engine.power.card)
        self.clipped.add(outcome.clipped)
        self.shrunk.add(outcome.shrunk)
        self._count_fallbacks(engine)

    def _count_fallbacks(self, engine: Engine) -> None:
        if engine is not self._engine:
            self._engine, self._fallbacks_told = engine, dict.fromkeys(FALLBACKS, 0)
        for reason, counter in FALLBACKS.items():
            count = engine.counters[counter]
            self.fallbacks.add(count - self._fallbacks_told[reason], reason)
            self._fallbacks_told[reason] = count

    def _set_load(self, engine: Engine, view: View) -> None:
        slots = engine.slots
        running = self._by_class(slots.slo_class[0], slots.active[0].astype(np.int64))
        for name, held, queued in zip(self._class_names, running, view.queued, strict=True):
            self.running.set(int(held), name)
            self.waiting.set(int(queued), name)
        self.kv_usage.set(1 - view.kv_free_pages / view.kv_total_pages)
        contexts = slots.context[0] * slots.active[0]
        self.kv_fragmentation.set(engine.backend.pool.fragmentation(contexts))
        self.kv_tree_pages.set(engine.backend.pool.tree_pages(contexts))
        for action, counts in engine.overload.counts.items():
            for name, count in zip(self._class_names, counts, strict=True):
                self.overloads.set(int(count), name, action)

    def _set_card(self, card: CardReading) -> None:
        self.gpu_power.set(card.watts)
        self.gpu_memory.set(card.memory_used_bytes, "used")
        self.gpu_memory.set(card.memory_total_bytes, "total")
        self.gpu_clock.set(card.sm_clock_hertz, "sm")
        self.gpu_clock.set(card.memory_clock_hertz, "memory")
        self.gpu_temperature.set(card.temperature_celsius)

    def _count_emissions(self, engine: Engine, view: View, outcome: Outcome) -> None:
        ended_s = outcome.start_s + outcome.iteration_s
        for slot in np.flatnonzero(outcome.ran).tolist():
            name = self._class_names[outcome.slo_class[slot]]
            request = int(engine.slots.request[0, slot])
            if request not in self._emitted_at_s:
                self._began(name, int(engine.slots.prompt_tokens[0, slot]))
                self._emitted_at_s[request] = view.clock_s - float(view.decode_time_s[slot])
            gap_s = ended_s - self._emitted_at_s[request]
            self._emitted_at_s[request] = ended_s
            self.token_gap.observe(gap_s, name)
            self.token_gap_alias.observe(gap_s, name)
        self._add_by_class(self.generation_tokens, outcome, outcome.accepted_length)
        self._add_by_class(self.valid_tokens, outcome, outcome.valid_tokens)
        self._add_by_class(self.let_through, outcome, outcome.let_through)

    def _began(self, name: str, prompt_tokens: int) -> None:
        """The prompt is through, and prefill has emitted the first token."""
        self.prompt_tokens.add(prompt_tokens, name)
        self.generation_tokens.add(1, name)
        self.valid_tokens.add(1, name)

    def _count_drafts(self, outcome: Outcome) -> None:
        verified = np.maximum(outcome.verified - 1, 0)
        accepted = outcome.accepted.sum(1)
        drafts = verified > 0
        self._add_by_class(self.drafts, outcome, drafts)
        self._add_by_class(self.draft_tokens, outcome, verified)
        self._add_by_class(self.accepted_tokens, outcome, accepted)
        self._add_by_class(self.drafted, outcome, outcome.drafted)
        self._add_by_class(self.wasted, outcome, outcome.wasted)
        for depth in range(outcome.accepted.shape[1]):
            at = str(depth)
            self._add_by_class(self.accepted_per_pos, outcome, outcome.accepted[:, depth], at)
            self._add_by_class(self.proposed_per_pos, outcome, outcome.proposed[:, depth], at)
        ran = outcome.ran
        self.verify_calls.add(int(drafts[ran].any()))
        self._window += (1, drafts[ran].sum(), verified[ran].sum(), accepted[ran].sum())
        if self._window[0] >= GAUGE_WINDOW:
            self._set_speculation()

    def _set_speculation(self) -> None:
        _, verifications, verified, accepted = self._window.tolist()
        self._window[:] = 0
        self.accept_length.set(1 + accepted / verifications if verifications else 0.0)
        self.accept_rate.set(accepted / verified if verified else 0.0)

    def _add_by_class(
        self, counter: Counter, outcome: Outcome, values: np.ndarray, *more: str
    ) -> None:
        sums = self._by_class(outcome.slo_class, values * outcome.ran)
        for name, amount in zip(self._class_names, sums, strict=True):
            counter.add(float(amount), name, *more)

    def _by_class(self, slo_class: Ints, values: Ints) -> np.ndarray:
        return np.bincount(slo_class, values, len(self._class_names))

    # -- the end of a request ------------------------------------------------------------------

    def on_record(self, record: RequestRecord) -> None:
        """Add the request's times and whether its objectives were met."""
        names = self._class_names
        # Before the first iteration no engine has said what its classes are called.
        name = names[record.slo_class] if names else f"class {record.slo_class}"
        if self._emitted_at_s.pop(record.id, None) is None and record.output_tokens:
            self._began(name, record.prompt_tokens)
        self.requests.add(1, name, record.status.value)
        self.preemptions.add(record.preempted, name)
        self.promised.add(int(record.has_objective), name)
        self.attained.add(int(record.has_objective and record.attained), name)
        self.first_token.observe(record.ttft_s, name)
        self.queue_time.observe(record.admitted_s - record.arrival_s, name)
        self.prefill_time.observe(record.first_token_s - record.admitted_s, name)
        if record.status is Status.FINISHED:
            self.request_tpot.observe(record.tpot_s, name)
            self.latency.observe(record.finish_s - record.arrival_s, name)
            self.decode_time.observe(record.finish_s - record.first_token_s, name)
