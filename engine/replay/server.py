"""A replay server: a recording and a hardware profile, loaded once, and episodes on them.

It has the face of `engine.serving.LiveServer`, needs no network and imports none. Every episode has
a backend of its own, so several may be under way at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.errors import UserError
from engine.loop import Engine, EngineSettings
from engine.overload import OverloadRule
from engine.paging import PagePool
from engine.profile.hardware_profile import HardwareProfile
from engine.profile.power_model import capped
from engine.profile.published import open_profile
from engine.protocol import Limits
from engine.replay.backend import ReplayBackend
from engine.replay.clock import ProfileMeter, check_sizes
from engine.replay.drift import episode_key
from engine.replay.effects import Effects
from engine.replay.lookup import open_book
from engine.replay.power_levels import PowerLevels
from engine.replay.recorded_request import RecordedRequest
from engine.replay.recording import Manifest, Recording
from engine.replay.recording_folder import load
from engine.request import Request
from engine.workload.build import disturbances_of
from engine.workload.capacity_mix import Asked
from engine.workload.disturbances import Disturbances

if TYPE_CHECKING:
    from engine.replay.capacity_table import CapacityTable

DATA = Path(__file__).resolve().parent / "data"
DEFAULT_RECORDING = DATA / "smollm2-135m-eagle3"
DEFAULT_PROFILE = DATA / "profiles" / "smollm2-135m-eagle3.json"
DECISION_S = 300e-6
"""What a decision costs on replay, whoever takes it: near what live runs measured for fixed trees
and `sglang-ema` (docs/results/fidelity.md, "time of controller")."""
PROBE_CONTEXT_TOKENS = 74
"""The middle of the requests by which a live server measures itself: prompts of 64, 21 tokens
out."""


@dataclass(frozen=True)
class ReplayConfig:
    """What to replay, and by whose times."""

    recording: Path | None = None
    """Folder of a recording; None takes the one that ships with DraftGym."""
    profile: Path | str | None = None
    """Hardware profile of the recorded pair, or a published one by its name; None takes the one
    that ships with DraftGym."""
    model: str | None = None
    """The target that is wanted; None takes whatever was recorded."""
    drafter: str | None = None
    """The drafter that is wanted, likewise."""
    slots: int = 16
    capacity_tokens: int = 1024
    """Cache rows a slot."""
    page_size: int | None = None
    """Tokens of a KV page, None for one page a request."""
    kv_pool_tokens: int | None = None
    """Tokens that the KV pool holds; fewer than all slots at capacity are memory pressure. None
    takes what the profiled card has room for, and all slots at capacity where that is not known."""
    power_cap_watts: float | None = None
    """Constant cap on the power of all the device's cards together, modelled; None for no cap."""
    decision_s: float = DECISION_S
    """Charged for every decision, whatever it really takes, so that an episode can be repeated."""


class ReplayServer:
    """A recording, served. Acceptance is exact; time, power and memory are the profile's."""

    tokenizer = None
    """Recorded requests are tokens from the start."""

    def __init__(
        self,
        manifest: Manifest,
        recording: Recording,
        profile: HardwareProfile,
        config: ReplayConfig | None = None,
    ) -> None:
        """Of `config`, the sizes and the decision's cost; `load` looks at the rest.

        Raises UserError for a profile measured on another pair, or one without the sizes that are
        needed.
        """
        config = config or ReplayConfig()
        self._foreign = _times_of_another(manifest, profile)
        self.power_cap_watts = config.power_cap_watts
        self._free = profile  # of any cap
        if config.power_cap_watts is not None:
            profile = capped(profile, config.power_cap_watts)
        limits = Limits(config.slots, manifest.max_depth, manifest.max_width, manifest.max_nodes)
        if limits.max_nodes < limits.max_width:
            raise UserError(
                f"the recording keeps {limits.max_nodes} nodes of a tree, fewer than a beam of "
                f"{limits.max_width}; record at least as many nodes as the widest beam has"
            )
        if not 0.0 <= config.decision_s < float("inf"):
            raise UserError(
                f"decision_s is {config.decision_s}; expected seconds, a number of at least 0"
            )
        self.manifest, self.recording, self.profile = manifest, recording, profile
        self.settings = EngineSettings(limits, config.capacity_tokens)
        self._check_sizes(self.settings)
        kv_pool_tokens = config.kv_pool_tokens
        if kv_pool_tokens is None and profile.memory.device_bytes > 0:
            kv_pool_tokens = profile.kv_pool_tokens()
        self._pages = config.page_size, kv_pool_tokens
        self._levels: PowerLevels | None = None
        PagePool.sized(limits.slots, config.capacity_tokens, *self._pages)  # refused now or never
        self.decision_s = config.decision_s
        self.book = open_book(recording)
        self.unloaded_tpot_s = self._step_s(1)

    @classmethod
    def load(cls, config: ReplayConfig) -> ReplayServer:
        """Load a recording and a profile; raises UserError when either cannot be had or used."""
        manifest, recording = load(config.recording or _default_recording())
        for name in ("model", "drafter"):
            wanted, recorded = getattr(config, name), getattr(manifest, name)
            if wanted is not None and wanted != recorded:
                raise UserError(
                    f"--{name} {wanted}: the recording {config.recording or DEFAULT_RECORDING} is "
                    f"of {recorded}; name a recording of {wanted} with --recording, or record one "
                    "with `python record.py`"
                )
        profile = open_profile(config.profile or _default_profile())
        return cls(manifest, recording, profile, config)

    @property
    def name(self) -> str:
        """The recorded target."""
        return self.manifest.model

    def engine(
        self,
        requests: Sequence[Request],
        classes: ClassTable = DEFAULT_CLASSES,
        settings: EngineSettings | None = None,
        disturbances: Disturbances | None = None,
    ) -> Engine:
        """A fresh episode on a modelled clock. Raises UserError for what is not recorded.

        `disturbances` None takes those that drawn requests bring along. Prices and predictions stay
        the profile's: nobody tells them what goes wrong.
        """
        self._check(requests)
        self._check_sizes(settings or self.settings)
        wrong = disturbances_of(requests) if disturbances is None else disturbances
        effects = self.effects(requests, wrong) if Effects.occur_in(wrong) else None
        backend = ReplayBackend(
            self.book,
            self.manifest.vocab_size,
            self.profile,
            self.settings.limits,
            self.settings.capacity_tokens,
            *self._pages,
            effects,
        )
        engine = Engine(
            backend,
            requests,
            classes,
            settings or self.settings,
            self.unloaded_tpot_s,
            profile=self.profile,
            power=ProfileMeter(self.profile, backend.clock, self.power_cap_watts),
            stopwatch=backend.clock,
            decision_s=self.decision_s,
            disturbances=wrong if wrong.has("memory") else None,
        )
        if effects is not None:
            effects.follow(engine)
        return engine

    def effects(self, requests: Sequence[Request], disturbances: Disturbances) -> Effects:
        """What goes wrong with these recorded requests, memory aside."""
        recorded = [request for request in requests if isinstance(request, RecordedRequest)]
        return Effects(disturbances, episode_key(recorded), self.power_levels)

    @property
    def power_levels(self) -> PowerLevels:
        """The device at every power cap that may come and go."""
        free = self.profile if self.power_cap_watts is None else self._free
        if self._levels is None or self._levels.free is not free:
            self._levels = PowerLevels(free, self.power_cap_watts)
        return self._levels

    @cached_property
    def capacity_table(self) -> CapacityTable:
        """What fixed trees drain here: shipped, cached, or swept at the first call, in seconds."""
        from engine.replay.capacity_store import table_of  # deferred: its sweep serves on this

        return table_of(self)

    def capacity_of(self, asked: Sequence[Asked]) -> float:
        """Requests per second at which the best fixed tree drains the mix (ALGORITHMS.md §10)."""
        return self.capacity_table.rps(asked)

    def capacity_rps(self, mean_prompt_tokens: float, mean_output_tokens: float) -> float:
        """`capacity_of` all recorded classes in equal shares, whose requests are that long."""
        table = self.capacity_table
        return table.rps(table.alike(mean_prompt_tokens, mean_output_tokens))

    def roomy(self, slots: int) -> ReplayServer:
        """The same with so many slots, KV pages for all of them and nobody refused.

        That is how a fleet serves.
        """
        plain, settings = copy(self), self.settings
        limits = settings.limits._replace(slots=slots)
        plain.settings = replace(settings, limits=limits, overload=OverloadRule())
        plain._pages = None, None
        return plain

    def describe(self) -> str:
        """One line for people."""
        of = self.profile.identity
        where = of.dtype if of.device == "cuda" else f"{of.dtype}, {of.threads} threads"
        told = [
            f"target {self.name} · drafter {self.manifest.drafter} · replay, modelled time of "
            f"{of.machine.processor} ({where})"
        ]
        if self._foreign:
            told.append(self._foreign)
        if self.power_cap_watts is not None:
            told.append(f"power capped at {self.power_cap_watts:g} W (modelled)")
        told.append(f"unloaded {1e3 * self.unloaded_tpot_s:.0f} ms per token (modelled)")
        return " · ".join(told)

    def _step_s(self, requests: int) -> float:
        """An ordinary step of so many requests, its decision included."""
        contexts = np.full(requests, PROBE_CONTEXT_TOKENS)
        return self.profile.step_s(0, 1, 0, contexts) + self.decision_s

    def _check_sizes(self, settings: EngineSettings) -> None:
        # A chunk is of one request, so no budget makes it longer than the longest text.
        longest = int(np.diff(self.recording.first_token).max())
        chunk = min(settings.prefill_tokens, longest)
        check_sizes(self.profile, settings.limits, settings.context_tokens, chunk)

    def _check(self, requests: Sequence[Request]) -> None:
        texts = self.recording.texts
        for request in requests:
            if not isinstance(request, RecordedRequest):
                raise UserError(
                    f"request {request.id} names no recorded text; draw requests for replay with "
                    "engine.replay.drawing"
                )
            if not 0 <= request.text < texts:
                raise UserError(
                    f"request {request.id} asks for text {request.text}; expected one of the "
                    f"{texts} recorded, counted from 0"
                )
            prompt = int(self.recording.prompt_tokens[request.text])
            recorded = int(self.book.outputs[request.text])
            if len(request.prompt) != prompt or request.max_tokens > recorded:
                raise UserError(
                    f"request {request.id} has a prompt of {len(request.prompt)} tokens and wants "
                    f"up to {request.max_tokens}; text {request.text} was recorded with {prompt} "
                    f"and {recorded}"
                )


def _default_recording() -> Path:
    """The recording that ships; raises UserError in a checkout without it."""
    if not DEFAULT_RECORDING.is_dir():
        raise UserError(
            f"no recording was named and none ships here ({DEFAULT_RECORDING} is missing); make "
            "one with `python record.py --out FOLDER` and name it with --recording FOLDER"
        )
    return DEFAULT_RECORDING


def _default_profile() -> Path:
    """The profile that ships; raises UserError in a checkout without it."""
    if not DEFAULT_PROFILE.is_file():
        raise UserError(
            f"no hardware profile was named and none ships here ({DEFAULT_PROFILE} is missing); "
            "measure one with `python -m engine.profile --out FILE` and name it with --profile "
            "FILE, or take a published one (`python -m engine.profile --list`)"
        )
    return DEFAULT_PROFILE


def _times_of_another(manifest: Manifest, profile: HardwareProfile) -> str:
    """How to call times that are another pair's, "" where they are the recorded pair's own.

    A profile that was measured here holds for its own pair: another's is a slip. Published and
    modelled ones are of other people's pairs from the start, and are labelled.
    Raises UserError for the former.
    """
    of = profile.identity
    different = [
        f"{name} {getattr(manifest, name)}, profile {getattr(of, name)}"
        for name in ("model", "drafter", "network")
        if getattr(manifest, name) != getattr(of, name)
    ]
    if different and profile.origin("verify").kind == "measured":
        raise UserError(
            f"the recording and the hardware profile are of different pairs ({'; '.join(different)}"
            "); give a --profile of the recorded pair, measured with `python -m engine.profile`, "
            "or a published one by name, whose times are then called another pair's"
        )
    if (manifest.model, manifest.drafter) == (of.model, of.drafter):
        return ""
    return (
        f"acceptance of {manifest.model} with {manifest.drafter}, times of {of.model} with "
        f"{of.drafter}"
    )
