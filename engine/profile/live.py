"""Profile a live server: what to run, how much memory it holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from engine.profile.build import build_profile
from engine.profile.hardware_profile import HardwareProfile, MemoryUse
from engine.profile.measure import measure
from engine.profile.power import measure_power
from engine.profile.schedule import CARD_MOST_TOKENS, schedule
from engine.serving import LiveServer


def profile_server(
    server: LiveServer,
    quick: bool,
    rounds: int,
    budget_s: float,
    seed: int,
    progress: Callable[[float], None] = lambda done: None,
) -> HardwareProfile:
    """Measure for about `budget_s` seconds (three rounds at least) and fit; not stored yet.

    On a card, verification is measured up to far more tokens, closely around the sizes of captured
    graphs, and power stage by stage where the card is metered.

    `quick` takes fewer points; `seed` draws the order of trees and what is held out. Raises
    UserError when the server is too small to measure enough different steps.
    """
    orders, holding = np.random.default_rng(seed).spawn(2)
    settings = server.settings
    stairs: tuple[int, ...] = getattr(server.decoder, "token_tiers", ())
    most_tokens = CARD_MOST_TOKENS if server.decoder.device.type == "cuda" else None
    episodes = schedule(
        settings.limits, settings.context_tokens, quick, orders, most_tokens, stairs
    )
    timed = measure(server, episodes, rounds, budget_s, progress)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return build_profile(
        server.identity, now, timed, _memory(server), holding, measure_power(server)
    )


def _memory(server: LiveServer) -> MemoryUse:
    config = server.decoder.config
    values = 2 * config.layers * config.kv_heads * config.head_dim
    return MemoryUse(
        weight_bytes=server.decoder.weight_bytes(),
        kv_bytes_per_token=values * server.decoder.dtype.itemsize,
        resident_bytes=server.backend.memory_bytes(),
    )
