"""A server on this machine: networks loaded once, episodes on them as many as wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.backends.live import LiveBackend
from engine.backends.protocol import Backend
from engine.card import card_meter, machine_with, wait_for
from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.compute import choose_device, choose_dtype
from engine.drafters.build import (
    DraftNetwork,
    load_network,
    make_drafter,
    network_folder,
    positions,
)
from engine.drafters.guarded import Guarded
from engine.drafters.protocol import Drafter
from engine.drafters.scheduled import Scheduled
from engine.gpu_meter import GpuMeter
from engine.graphs_ahead import capture_ahead
from engine.loop import Engine, EngineSettings
from engine.profile.fallback import Fallback, WithoutProfile
from engine.profile.hardware_profile import HardwareProfile
from engine.profile.identity import Identity, network_label
from engine.profile.lookup import look_up
from engine.protocol import Bools, Candidates, Controller, Limits, Plan, View, uniform_plan
from engine.request import Request
from engine.sampling.params import SamplingParams
from engine.telemetry import Meter
from engine.workload.build import disturbances_of
from engine.workload.capacity_mix import Asked, mean_lengths
from engine.workload.disturbances import Disturbances
from engine.workload.drafter_schedule import disturbed
from models.attention_choice import choose_attention, resolve_attention
from models.decoder import Decoder
from models.graphed import card_graphs, with_graphs
from models.narrow_product import match_threads
from models.registry import resolve
from models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.replay.capacity_table import CapacityTable

PROBE_CONTEXT = 64  # prompt length of the measuring requests
PROBE_ITERATIONS = 20
CARD_PAGE_TOKENS = 16  # of FlashInfer's pages where none are asked for


@dataclass(frozen=True)
class LiveConfig:
    """What to serve and how."""

    model: str = "smollm2-135m-instruct"
    """Registry name, folder in Hugging Face format, or hub id."""
    draft_head: Path | None = None
    """EAGLE-3 checkpoint folder; None takes the registry's head for the model."""
    dtype: str = "auto"
    """auto, float32, bfloat16 or float64; auto is bfloat16 on a card, on the CPU what is faster."""
    slots: int = 16
    capacity_tokens: int = 1024
    """Cache rows a slot; no more than the networks have positions for are made."""
    threads: int = 0
    """CPU threads, 0 for all cores; they matter little where the networks are on a card."""
    drafter: str = "eagle3"
    """eagle3, model (a smaller decoder) or prompt-lookup (n-grams of the text, no weights)."""
    draft_model: str | None = None
    """For the drafter `model`: registry name, folder or hub id, with the target's vocabulary."""
    page_size: int | None = None
    """Tokens of a KV page, None for one page a request, which plain attention reads as it stands.

    With FlashInfer None is 16: it splits a request's keys between multiprocessors at pages' ends,
    and one page would leave most of a card idle. The drafter's cache keeps one page a request.
    """
    kv_pool_tokens: int | None = None
    """Tokens that the KV pool holds, None for all slots at capacity; fewer are memory pressure."""
    attention: str = "auto"
    """auto, plain, flashinfer, or interpreter: FlashInfer's calls, computed on the CPU."""
    device: str = "auto"
    """auto, cpu or cuda; auto is cuda where torch finds a card."""
    graphs: bool = True
    """CUDA graphs where a card runs FlashInfer's attention; elsewhere it changes nothing."""
    profile: Path | None = None
    """Hardware profile, None for the one in the cache that fits, if there is one."""


class LiveServer:
    """Target and drafter in memory, and what ordinary decoding costs here.

    It serves where the target's weights are, on the CPU or on a card.

    `head` is the drafter's network: a draft head, a smaller decoder, or None for prompt lookup.
    A `drafter` takes the place of the one that would be made of it. `guard` stands around it, and
    `guard.failures` counts the draft calls that raised. `profile` says what steps cost here, None
    where that was not measured; then `fallback` stands in for controllers that need it. `page_size`
    is as in `LiveConfig`: None is one page a request on a CPU, and pages of 16 under FlashInfer.
    """

    def __init__(
        self,
        decoder: Decoder,
        head: DraftNetwork | None,
        tokenizer: Tokenizer | None,
        limits: Limits,
        capacity_tokens: int,
        name: str,
        drafter: Drafter | None = None,
        page_size: int | None = None,
        kv_pool_tokens: int | None = None,
        attention: str = "auto",
        graphs: bool = True,
    ) -> None:
        """Raises UserError for an attention that is unknown or cannot be had here."""
        for network in (decoder, head):
            if network is not None:  # each its own: a wrapper holds one plan
                network.attention = choose_attention(attention, network.dtype, network.device)
        self.graphs = card_graphs(decoder) if graphs else None
        """CUDA graphs of all networks, and what ran without; None: everything does."""
        if self.graphs is not None:
            decoder = with_graphs(decoder, self.graphs)
            head = None if head is None else with_graphs(head, self.graphs)
        self.decoder, self.head, self.tokenizer, self.name = decoder, head, tokenizer, name
        self.device = decoder.device
        self.attention = resolve_attention(attention, decoder.dtype, decoder.device)
        if page_size is None and self.attention == "flashinfer":
            page_size = CARD_PAGE_TOKENS
        self.page_size = page_size
        self.settings = EngineSettings(limits, capacity_tokens)
        self.drafter = drafter or make_drafter(head, decoder, limits, capacity_tokens)
        self.guard = Guarded(self.drafter)
        self._faulty: Scheduled | None = None  # around the guarded drafter, for one episode
        self.backend = LiveBackend(
            decoder, head, limits, capacity_tokens, page_size, kv_pool_tokens, self.guard
        )
        self.profile: HardwareProfile | None = None
        self.fallback = Fallback()
        self.power: Meter | None = card_meter(self.device)
        """Of the networks' card, one for all episodes; None: the processor's."""
        self.network_source = ""
        """What was given as draft head or draft model."""
        self.unloaded_tpot_s = 1.0  # replaced by the measurement that follows
        try:
            self.warm_up()
            self.unloaded_tpot_s, _ = self._measure(1)
            self.full_batch_s, self.prefill_s_per_token = self._measure(limits.slots)
        except BaseException:  # nobody else could end the meter's thread
            self.close()
            raise

    @classmethod
    def load(cls, config: LiveConfig) -> LiveServer:
        """Load a model by name or path; raises UserError when it or its drafter cannot be had."""
        if config.threads:
            torch.set_num_threads(config.threads)
        name = config.drafter
        draft_folder = network_folder(name, config.model, config.draft_head, config.draft_model)
        device = choose_device(config.device)
        folder = resolve(config.model)
        dtype = choose_dtype(config.dtype, device=device)
        decoder = Decoder.from_folder(folder, dtype, device)
        network = load_network(name, draft_folder, decoder, folder, dtype)
        bounds = (config.capacity_tokens, decoder.config.context, positions(network))
        capacity = min(bound for bound in bounds if bound is not None)
        limits = Limits(slots=config.slots)
        server = cls(
            decoder, network, Tokenizer(folder), limits, capacity, config.model,
            page_size=config.page_size, kv_pool_tokens=config.kv_pool_tokens,
            attention=config.attention, graphs=config.graphs,
        )  # fmt: skip
        server.network_source = str(config.draft_head or config.draft_model or "")
        server.use_profile(config.profile)
        return server

    @property
    def identity(self) -> Identity:
        """What step times here hang on, and a hardware profile is found by."""
        return Identity(
            machine=machine_with(self.device),
            threads=torch.get_num_threads() if self.device.type == "cpu" else 0,
            model=self.name,
            dtype=str(self.decoder.dtype).removeprefix("torch."),
            drafter=self.drafter.name,
            network=network_label(None if self.head is None else self.head.config),
            device=self.device.type,
            attention=self.attention,
            page_size=self.page_size,
            graphs=self.graphs is not None,
            source=self.network_source,
        )

    def use_profile(self, path: Path | None = None) -> None:
        """Take the profile at `path`, or the one in the cache that fits, if there is one.

        Raises UserError for a file that cannot be read or is of another set-up.
        """
        if path is not None:
            self.profile = HardwareProfile.load(path, self.identity)
        else:
            self.profile, missing = look_up(self.identity)
            self.fallback = Fallback(missing)

    def engine(
        self,
        requests: Sequence[Request],
        classes: ClassTable = DEFAULT_CLASSES,
        settings: EngineSettings | None = None,
        backend: Backend | None = None,
        disturbances: Disturbances | None = None,
        waiting: bool = False,
    ) -> Engine:
        """A fresh episode; only one may be under way at a time, they share the caches.

        A `backend` stands around the server's own, such as `engine.backends.forced.Forced`.
        `disturbances` act on drafter and memory; None takes those that drawn requests bring along.
        A `waiting` engine waits for the device wherever it reads its stopwatch: every part of a
        step is then charged its own work, as a profile wants it.
        """
        match_threads()
        wrong = disturbances_of(requests) if disturbances is None else disturbances
        engine = Engine(
            backend or self.backend,
            requests,
            classes,
            settings or self.settings,
            self.unloaded_tpot_s,
            None if self.tokenizer is None else self.tokenizer.decode,
            self.profile,
            self.fallback,
            self.power,
            self._stopwatch(waiting),
            disturbances=wrong,
        )
        self._disturb_drafter(wrong, lambda: engine.clock_s)
        return engine

    def _disturb_drafter(self, disturbances: Disturbances, now: Callable[[], float]) -> None:
        """Put the episode's faults around the drafter, those of the episode before away."""
        if self._faulty is not None and self.guard.drafter is self._faulty:
            self.guard.drafter = self._faulty.drafter
        # The same draws for every episode: each controller meets the same faults.
        generator = np.random.default_rng(0)
        vocab = self.decoder.config.vocab_size
        found = disturbed(self.guard.drafter, disturbances, vocab, generator, now)
        self._faulty = found if isinstance(found, Scheduled) else None
        self.guard.drafter = found

    def _stopwatch(self, waiting: bool) -> Callable[[], float] | None:
        """None is the engine's own; a CPU has nothing outstanding to be waited for."""
        if waiting and self.device.type != "cpu":
            return self._when_done
        return None if self.graphs is None else self._without_captures

    def _when_done(self) -> float:
        """A stopwatch that is read when the device has done all that it was given."""
        wait_for(self.device)
        return self._without_captures()

    def _without_captures(self) -> float:
        """A stopwatch that stands still while a graph is captured, as compilation is nobody's."""
        return perf_counter() - (0.0 if self.graphs is None else self.graphs.late_s)

    def close(self) -> None:
        """End the reading of the card's energy, which is modelled from then on.

        Without a card there is nothing to end; closing twice is once.
        """
        if isinstance(self.power, GpuMeter):
            self.power.close()

    @cached_property
    def capacity_table(self) -> CapacityTable | None:
        """What fixed trees drain here, by the profile and a recording of the pair, in seconds.

        None where the server has no profile or no recording of its pair is at hand.
        """
        from engine.replay.capacity_live import table_of_live  # deferred: many never ask

        return table_of_live(self)

    def capacity_of(self, asked: Sequence[Asked]) -> float:
        """Requests per second at which the best fixed tree drains the mix (ALGORITHMS.md §10).

        Without a table, what ordinary decoding with all slots busy would finish: an estimate from
        two measured times, a full batch's step and a prompt token's.
        """
        if self.capacity_table is not None:
            return self.capacity_table.rps(asked)
        prompt_tokens, output_tokens = mean_lengths(asked)
        decode_s = self.full_batch_s / self.settings.limits.slots * output_tokens
        return 1.0 / (decode_s + self.prefill_s_per_token * prompt_tokens)

    def capacity_rps(self, mean_prompt_tokens: float, mean_output_tokens: float) -> float:
        """`capacity_of` requests that are that long, of no class in particular."""
        return self.capacity_of([Asked("", 1.0, mean_prompt_tokens, mean_output_tokens)])

    @property
    def capacity_source(self) -> str:
        """Whence `capacity_of` knows, in words; looks for a table, which takes seconds."""
        by_table = self.capacity_table is not None
        return "swept on its profile" if by_table else "estimated by ordinary decoding"

    def describe(self) -> str:
        """One line for people."""
        dtype = str(self.decoder.dtype).removeprefix("torch.")
        threads = f"{torch.get_num_threads()} threads"
        where = threads if self.device.type == "cpu" else torch.cuda.get_device_name(self.device)
        target = f"target {self.name} ({dtype}, {where})"
        return (
            f"{target} · drafter {self.drafter.name} · "
            f"unloaded {1e3 * self.unloaded_tpot_s:.0f} ms per token"
        )

    def warm_up(self) -> None:
        """Capture the graphs, compile the kernels and touch every code path once.

        Never charged to anyone.
        """
        limits, capacity = self.settings.limits, self.settings.capacity_tokens
        capture_ahead(self.decoder, self.head, limits, capacity, self.backend.capture)

        class Deep(Controller):
            def plan(self, view: View) -> Plan:
                return uniform_plan(view.limits, 3, 2, 4, margin=0.9)

        class Choosing(Deep):
            def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools:
                return np.arange(candidates.parent.shape[1]) < candidates.size[:, None]

        sampled = SamplingParams(1.0, top_k=20, top_p=0.9, min_p=0.01, repetition_penalty=1.1)
        for controller in (Deep(), Choosing()):
            requests = self._probe_requests(2, 6)
            requests[1].sampling = sampled  # beside a greedy one, so that both paths are met
            self.engine(requests).serve(controller, max_iterations=4)

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
        controller = WithoutProfile()
        while (view := engine.next_decision()) is not None:
            prefill_s = prefill_s or engine.clock_s
            begun = perf_counter()
            engine.run_iteration(view, controller)
            times.append(perf_counter() - begun)
        return median(times[2:]), prefill_s / prompt_tokens
