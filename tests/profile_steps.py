"""Timed steps of an imaginary machine whose costs are known, for tests of the profile."""

from __future__ import annotations

import numpy as np

from engine.profile.build import Identity, build_profile
from engine.profile.hardware_profile import HardwareProfile, MemoryUse
from engine.profile.machine import Machine, this_machine
from engine.profile.measure import Step
from engine.profile.schedule import Episode, schedule
from engine.protocol import Limits

LIMITS = Limits()
CONTEXT = 959


def episodes(quick: bool = False) -> list[Episode]:
    """What would be run on a server of the usual size."""
    return schedule(LIMITS, CONTEXT, quick, np.random.default_rng(0))


def verify_s(tokens: float, kv_tokens: float) -> float:
    """Flat up to 24 tokens, a jump, then a slope; and what attention reads."""
    over = 0.004 + 0.0008 * (tokens - 24) if tokens > 24 else 0.0
    return 0.020 + 0.0001 * min(tokens, 24) + over + 2e-6 * kv_tokens


def draft_s(first_rows: float, beam_rows: float, further: float) -> float:
    """A catch-up that costs by the row, and beams that cost less."""
    return (0.002 + 1e-4 * first_rows) + further * (0.001 + 4e-5 * beam_rows)


def steps(
    plan: list[Episode], noise: float = 0.0, repeats: int = 3, seed: int = 0, slow: float = 1.0
) -> list[Step]:
    """Every step of every episode, `repeats` times; `slow` multiplies all times."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(repeats):
        for index, episode in enumerate(plan):
            behind = episode.requests * episode.prompt_tokens
            for place, shape in enumerate(episode.shapes):
                n = episode.requests
                tokens = n * (shape.nodes + 1)
                kv = n * (episode.prompt_tokens + 2 * place)
                first, beam = (behind if shape.depth else 0), n * shape.width
                behind = 2 * n if shape.depth else behind + n
                alone = n == 1 and place == 0
                factor = slow * np.exp(noise * rng.standard_normal(4))
                drafted = draft_s(first, beam, shape.depth - 1) if shape.depth else 0.0
                made.append(
                    Step(
                        episode=index,
                        place=place,
                        shape=shape,
                        requests=n,
                        tokens=tokens,
                        kv_tokens=kv,
                        first_rows=first,
                        beam_rows=beam,
                        prompt_tokens=episode.prompt_tokens if alone else 0,
                        prefill_s=(0.015 + 8e-4 * episode.prompt_tokens) * factor[0],
                        draft_s=drafted * factor[1],
                        verify_s=verify_s(tokens, kv) * factor[2],
                        host_s=(2e-4 + 1e-5 * n) * factor[3],
                        watts=10.0 + tokens / 10,
                        watts_are_measured=True,
                    )
                )
    return made


def profile_of(timed: list[Step], machine: Machine | None = None) -> HardwareProfile:
    """The profile that such steps give."""
    identity = Identity(
        machine=machine or this_machine(),
        model="imaginary",
        dtype="float32",
        drafter="eagle3",
        threads=2,
        measured_at="2026-01-01T00:00:00+00:00",
    )
    return build_profile(identity, timed, MemoryUse(100, 10, 1000), np.random.default_rng(0))
