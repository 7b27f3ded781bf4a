"""A recording of the tiny networks, a profile whose costs are known, and a server of both."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from engine.profile.cost_model import Curve, PassCost
from engine.profile.hardware_profile import HardwareProfile, MemoryUse, PowerUse
from engine.profile.identity import Identity
from engine.profile.machine import Machine
from engine.protocol import Limits
from engine.replay.recipe import Task
from engine.replay.recorded_request import RecordedRequest
from engine.replay.recorder import Recorder
from engine.replay.recording import Manifest, Recording
from engine.replay.server import ReplayConfig, ReplayServer
from engine.serving import LiveServer
from engine.tiny import tiny_server

SLOTS, CAPACITY, TOKENS = 4, 192, 40
CLASSES = ("coding", "chat", "summarization")
LIMITS = Limits(slots=SLOTS)


@cache
def live_server() -> LiveServer:
    """The tiny networks in float64, so that replay has to agree to the last token."""
    return tiny_server(limits=LIMITS, capacity_tokens=CAPACITY)


@cache
def recorded() -> tuple[Manifest, Recording]:
    """Twelve texts of three classes, every other one of a class held out."""
    rng = np.random.default_rng(5)
    recorder = Recorder(live_server())
    tasks = [
        Task(i % 3, tuple(rng.integers(0, 64, int(rng.integers(6, 20))).tolist()), i % 2 == 1)
        for i in range(12)
    ]
    return recorder.manifest(CLASSES), recorder.record(tasks, TOKENS)


def known_profile(manifest: Manifest) -> HardwareProfile:
    """Costs that can be added up by hand: binary fractions of a second."""
    machine = Machine("by hand", 2, 8, "none")
    return HardwareProfile(
        identity=Identity(
            machine, 1, manifest.model, manifest.dtype, manifest.drafter, manifest.network
        ),
        measured_at="2026-01-01T00:00:00+00:00",
        verify=PassCost(Curve(2**-6, (0.0,), (2**-12,)), 2**-20, 0.0, 2**-11),
        draft_first=PassCost(Curve(2**-9, (0.0,), (2**-13,)), 2**-21, 0.0, 2**-12),
        draft_next=PassCost(Curve(2**-8, (0.0,), (2**-14,)), 2**-21),
        prefill=PassCost(Curve(2**-7, (0.0,), (2**-11,)), 2**-19, 0.0, 2**-10),
        host=PassCost(Curve(2**-10, (0.0,), (2**-16,)), 0.0, 0.0, 2**-14),
        most_tokens=260,
        context_tokens=64.0,
        fits={},
        power=PowerUse((1.0, 65.0), (10.0, 42.0), True),
        memory=MemoryUse(1000, 10, 123_456),
    )


def replay_server(**config: object) -> ReplayServer:
    """The recording on the known profile."""
    manifest, recording = recorded()
    sizes = ReplayConfig(slots=SLOTS, capacity_tokens=CAPACITY)
    return ReplayServer(
        manifest,
        recording,
        known_profile(manifest),
        replace(sizes, **config),  # type: ignore[arg-type]
    )


def asked(count: int = 8, tokens: int = TOKENS, gap_s: float = 0.0) -> list[RecordedRequest]:
    """Requests for the first texts, one every `gap_s` seconds."""
    _, recording = recorded()
    starts, prompts = recording.first_token[:count], recording.prompt_tokens[:count]
    return [
        RecordedRequest(
            i, i % 3, recording.tokens[start : start + prompt].tolist(), tokens, i * gap_s, text=i
        )
        for i, (start, prompt) in enumerate(zip(starts, prompts, strict=True))
    ]
