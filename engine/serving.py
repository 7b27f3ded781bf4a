"""A server on this machine: networks loaded once, episodes on them as many as wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch

from engine.backends.live import LiveBackend
from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.compute import choose_dtype
from engine.errors import UserError
from engine.loop import Engine, EngineSettings
from engine.protocol import Bools, Candidates, Controller, Limits, Plan, View, uniform_plan
from engine.request import Request
from models.decoder import Decoder
from models.draft_head import DraftHead
from models.registry import draft_head_for, resolve
from models.tokenizer import Tokenizer

PROBE_CONTEXT = 64  # prompt length of the measuring requests
PROBE_ITERATIONS = 20


@dataclass(frozen=True)
class LiveConfig:
    """What to serve and how."""

    model: str = "smollm2-135m-instruct"
    """Registry name, folder in Hugging Face format, or hub id."""
    draft_head: Path | None = None
    """EAGLE-3 checkpoint folder; None takes the registry's head for the model."""
    dtype: str = "auto"
    """auto, float32, bfloat16 or float64."""
    slots: int = 16
    capacity_tokens: int = 1024
    """Cache rows a slot; no more than the networks have positions for are made."""
    threads: int = 0
    """CPU threads, 0 for all cores."""


class _Ordinary(Controller):
    """Decoding without speculation, for measuring."""

    name = "ordinary"

    def plan(self, view: View) -> Plan:
        return uniform_plan(view.limits, 0, 1, 0)


class LiveServer:
    """Target and drafter in memory, and what ordinary decoding costs here."""

    def __init__(
        self,
        decoder: Decoder,
        head: DraftHead,
        tokenizer: Tokenizer | None,
        limits: Limits,
        capacity_tokens: int,
        name: str,
    ) -> None:
        self.decoder, self.head, self.tokenizer, self.name = decoder, head, tokenizer, name
        self.settings = EngineSettings(limits, capacity_tokens)
        self.backend = LiveBackend(decoder, head, limits, capacity_tokens)
        self.unloaded_tpot_s = 1.0  # replaced by the measurement that follows
        self.warm_up()
        self.unloaded_tpot_s, _ = self._measure(1)
        self.full_batch_s, self.prefill_s_per_token = self._measure(limits.slots)

    @classmethod
    def load(cls, config: LiveConfig) -> LiveServer:
        """Load a model by name or path; raises UserError when it or its head cannot be had."""
        if config.threads:
            torch.set_num_threads(config.threads)
        folder = resolve(config.model)
        head_folder = config.draft_head or draft_head_for(config.model)
        if head_folder is None:
            raise UserError(
                f"no draft head is known for {config.model}; give one with --draft-head FOLDER "
                "(train it with `python -m models.distill`)"
            )
        dtype = choose_dtype(config.dtype)
        decoder = Decoder.from_folder(folder, dtype)
        head = DraftHead.from_folder(Path(head_folder), decoder.embedding, dtype)
        limits = Limits(slots=config.slots)
        positions = min(decoder.config.context, head.config.max_position_embeddings)
        capacity = min(config.capacity_tokens, positions)
        return cls(decoder, head, Tokenizer(folder), limits, capacity, config.model)

    def engine(
        self,
        requests: Sequence[Request],
        classes: ClassTable = DEFAULT_CLASSES,
        settings: EngineSettings | None = None,
    ) -> Engine:
        """A fresh episode; only one may be under way at a time, they share the caches."""
        return Engine(
            self.backend, requests, classes, settings or self.settings, self.unloaded_tpot_s
        )

    def capacity_rps(self, mean_prompt_tokens: float, mean_output_tokens: float) -> float:
        """Requests per second that ordinary decoding with all slots busy would finish.

        An estimate from two measured times, a full batch's step and a prompt token's: a request
        costs its prompt and its share of the batch's steps.
        """
        decode_s = self.full_batch_s / self.settings.limits.slots * mean_output_tokens
        return 1.0 / (decode_s + self.prefill_s_per_token * mean_prompt_tokens)

    def describe(self) -> str:
        """One line for people."""
        dtype = str(self.decoder.dtype).removeprefix("torch.")
        return (
            f"target {self.name} ({dtype}, {torch.get_num_threads()} threads) · drafter eagle3 · "
            f"unloaded {1e3 * self.unloaded_tpot_s:.0f} ms per token"
        )

    def warm_up(self) -> None:
        """Compile the kernels and touch every code path once; never charged to anyone."""

        class Deep(Controller):
            def plan(self, view: View) -> Plan:
                return uniform_plan(view.limits, 3, 2, 4, margin=0.9)

        class Choosing(Deep):
            def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools:
                return np.arange(candidates.parent.shape[1]) < candidates.size[:, None]

        for controller in (Deep(), Choosing()):
            self.engine(self._probe_requests(2, 6)).serve(controller, max_iterations=4)

    def _probe_requests(self, count: int, tokens: int) -> list[Request]:
        generator = np.random.default_rng(0)
        length = min(PROBE_CONTEXT, self.settings.context_tokens - tokens)
        high = self.decoder.config.vocab_size
        return [
            Request(i, 0, generator.integers(0, high, length).tolist(), tokens, 0.0)
            for i in range(count)
        ]

    def _measure(self, batch: int) -> tuple[float, float]:
        """Median ordinary iteration over `batch` requests, and the time of a prompt token."""
        tokens = PROBE_ITERATIONS + 1
        requests = self._probe_requests(batch, tokens)
        prompt_tokens = sum(len(request.prompt) for request in requests)
        engine = self.engine(
            requests,
            settings=EngineSettings(
                self.settings.limits, self.settings.capacity_tokens, prefill_tokens=prompt_tokens
            ),
        )
        times = []
        prefill_s = 0.0
        controller = _Ordinary()
        while (view := engine.next_decision()) is not None:
            prefill_s = prefill_s or engine.clock_s
            begun = perf_counter()
            engine.run_iteration(view, controller)
            times.append(perf_counter() - begun)
        return median(times[2:]), prefill_s / prompt_tokens
