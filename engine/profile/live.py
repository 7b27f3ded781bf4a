"""Profile a live server: what to run, how much memory it holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from engine.profile.blocks import Blocks
from engine.profile.build import build_profile
from engine.profile.hardware_profile import HardwareProfile, MemoryUse
from engine.profile.measure import Timed, measure, run_episode
from engine.profile.power import measure_power
from engine.profile.schedule import CARD_MOST_TOKENS, Episode, schedule
from engine.serving import LiveServer
from models.layers import NARROW_ROWS

# `models.narrow_product.multiply` takes odd rows together with a repetition of the last one.
ROW_BLOCK = 2


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
    timed = measure(server, _episodes(server, quick, orders), rounds, budget_s, progress)
    return _fitted(server, timed, holding)


class ProfileRounds:
    """Rounds of measuring between which something else is done, and the profile of them all.

    A machine that is now faster and now slower is then the same, on average, for the profile and
    for what is compared with it.
    """

    def __init__(self, server: LiveServer, quick: bool, seed: int) -> None:
        """`quick` and `seed` as for `profile_server`."""
        orders, self._holding = np.random.default_rng(seed).spawn(2)
        self.server, self.episodes = server, _episodes(server, quick, orders)
        self.rounds: list[Timed] = []

    def run(self) -> Timed:
        """Measure every point once more."""
        timed = Timed([], [])
        for index in np.roll(np.arange(len(self.episodes)), len(self.rounds)).tolist():
            steps, chunks = run_episode(self.server, index, self.episodes[index])
            timed.steps.extend(steps)
            timed.chunks.extend(chunks)
        self.rounds.append(timed)
        return timed

    def profile(self) -> HardwareProfile:
        """Fitted to the rounds so far, of which three make a median that no single one decides."""
        steps = [step for timed in self.rounds for step in timed.steps]
        chunks = [chunk for timed in self.rounds for chunk in timed.chunks]
        return _fitted(self.server, Timed(steps, chunks), self._holding)


def _episodes(server: LiveServer, quick: bool, orders: np.random.Generator) -> list[Episode]:
    settings = server.settings
    stairs: tuple[int, ...] = getattr(server.decoder, "token_tiers", ())
    most_tokens = CARD_MOST_TOKENS if server.decoder.device.type == "cuda" else None
    return schedule(settings.limits, settings.context_tokens, quick, orders, most_tokens, stairs)


def _fitted(server: LiveServer, timed: Timed, holding: np.random.Generator) -> HardwareProfile:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    blocks = Blocks(ROW_BLOCK, NARROW_ROWS) if getattr(server.decoder, "compiled", False) else None
    power = measure_power(server)
    return build_profile(server.identity, now, timed, _memory(server), holding, power, blocks)


def _memory(server: LiveServer) -> MemoryUse:
    config = server.decoder.config
    values = 2 * config.layers * config.kv_heads * config.head_dim
    return MemoryUse(
        weight_bytes=server.decoder.weight_bytes(),
        kv_bytes_per_token=values * server.decoder.dtype.itemsize,
        resident_bytes=server.backend.memory_bytes(),
    )
