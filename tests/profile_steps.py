"""Timed passes of an imaginary machine whose costs are known, for tests of the profile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from engine.prefilling import Chunk
from engine.profile.build import build_profile
from engine.profile.hardware_profile import HardwareProfile, MemoryUse
from engine.profile.identity import Identity
from engine.profile.machine import this_machine
from engine.profile.measure import Step, Timed
from engine.profile.schedule import Episode, schedule
from engine.protocol import Limits
from models.narrow_product import match_threads

LIMITS = Limits()
CONTEXT = 959


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for all networks within."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    match_threads()
    torch.set_num_threads(1)  # where Numba starts its threads now, it takes torch's number away
    yield
    torch.set_num_threads(threads)


def episodes(quick: bool = False) -> list[Episode]:
    """What would be run on a server of the usual size."""
    return schedule(LIMITS, CONTEXT, quick, np.random.default_rng(0))


def verify_s(tokens: float, kv_tokens: float) -> float:
    """Flat up to 24 tokens, a jump, then a slope; and what attention reads."""
    over = 0.004 + 0.0008 * (tokens - 24) if tokens > 24 else 0.0
    return 0.020 + 0.0001 * min(tokens, 24) + over + 2e-6 * kv_tokens


def draft_s(first_rows: float, beam_rows: float, further: float, context: float) -> float:
    """A catch-up that costs by the row, beams that cost less, and what all of them attend to."""
    attended = 2e-8 * (first_rows + further * beam_rows) * context
    return (0.002 + 1e-4 * first_rows) + further * (0.001 + 4e-5 * beam_rows) + attended


def prefill_s(tokens: float, before: float, ends_prompt: bool) -> float:
    """What grows with the chunk, with what stands before it, and the first token at the end."""
    return 0.012 + 8e-4 * tokens + 2e-6 * tokens * before + 0.003 * ends_prompt


def timed(
    plan: list[Episode], noise: float = 0.0, repeats: int = 3, seed: int = 0, slow: float = 1.0
) -> Timed:
    """Every pass of every episode, `repeats` times; `slow` multiplies all times."""
    rng = np.random.default_rng(seed)
    made = Timed([], [])
    for _ in range(repeats):
        for index, episode in enumerate(plan):
            n = episode.requests
            for start, end in chunk_bounds(episode):
                seconds = prefill_s(end - start, start, end == episode.prompt_tokens)
                seconds *= slow * np.exp(noise * rng.standard_normal())
                made.chunks.append(Chunk(end - start, start, end == episode.prompt_tokens, seconds))
            behind = n * episode.prompt_tokens
            for place, shape in enumerate(episode.shapes):
                tokens = n * (shape.nodes + 1)
                context = episode.prompt_tokens + 2 * place
                kv = n * context
                first, beam = (behind if shape.depth else 0), n * shape.width
                behind = 2 * n if shape.depth else behind + n
                factor = slow * np.exp(noise * rng.standard_normal(3))
                drafted = draft_s(first, beam, shape.depth - 1, context) if shape.depth else 0.0
                made.steps.append(
                    Step(
                        episode=index,
                        place=place,
                        shape=shape,
                        requests=n,
                        tokens=tokens,
                        kv_tokens=kv,
                        first_rows=first,
                        beam_rows=beam,
                        draft_s=drafted * factor[0],
                        verify_s=verify_s(tokens, kv) * factor[1],
                        host_s=(2e-4 + 1e-5 * n) * factor[2],
                        watts=10.0 + tokens / 10,
                        watts_are_measured=True,
                    )
                )
    return made


def chunk_bounds(episode: Episode) -> list[tuple[int, int]]:
    """Start and end of the chunks in which the episode's prompts are read."""
    goal = episode.prompt_tokens
    step = episode.chunk_tokens or goal
    return [(start, min(start + step, goal)) for start in range(0, goal, step)]


IDENTITY = Identity(
    machine=this_machine(),
    threads=2,
    model="imaginary",
    dtype="float32",
    drafter="eagle3",
    network="576 wide (01234567)",
)


def profile_of(made: Timed, **identity: Any) -> HardwareProfile:
    """The profile that such passes give, of `IDENTITY` with changes."""
    return build_profile(
        replace(IDENTITY, **identity),
        "2026-01-01T00:00:00+00:00",
        made,
        MemoryUse(100, 10, 1000),
        np.random.default_rng(0),
    )
