"""Assemble the `View` of a decision point from the engine's arrays. Every array in it is fresh."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.kernels.view import slack_tokens
from engine.profile.pricing import pricing_of
from engine.protocol import View

if TYPE_CHECKING:
    from engine.backends.protocol import Backend
    from engine.loop import Engine


def build_view(engine: Engine) -> View:
    """What a controller may know now."""
    s, limits = engine.slots, engine.limits
    decoding = s.decoding[0]
    slack = np.zeros((1, limits.slots))
    decode_time_s = np.zeros((1, limits.slots))
    slack_tokens(np.array([engine.clock_s]), s, slack, decode_time_s)
    queued, oldest_s = engine.scheduler.queue_view(engine.clock_s)
    pool = engine.backend.pool
    total = pool.pages * pool.page_size
    return View(
        active=decoding.copy(),
        request=s.request[0].copy(),
        slo_class=s.slo_class[0].copy(),
        tokens_out=np.where(decoding, s.emitted[0] - 1, 0),
        decode_time_s=decode_time_s[0],
        tpot_objective_s=s.tpot_objective_s[0].copy(),
        slack_tokens=slack[0],
        queue_age_s=np.where(decoding, s.admitted_s[0] - s.arrival_s[0], 0.0),
        context_tokens=np.where(decoding, s.context[0], 0),
        remaining_tokens=np.where(decoding, s.max_tokens[0] - s.emitted[0], 0),
        proposed=s.proposed[0].copy(),
        accepted=s.accepted[0].copy(),
        since_proposed=s.since_proposed[0].copy(),
        draft_confidence=s.draft_confidence[0].copy(),
        class_names=engine.classes.names,
        class_tpot_objective_s=engine.ledger.tpot_objectives_s.copy(),
        queued=queued,
        oldest_queued_s=oldest_s,
        prefilling=int((s.active[0] & ~decoding).sum()),
        kv_free_tokens=total - int(s.context[0][s.active[0]].sum()),
        kv_total_tokens=total,
        kv_free_pages=engine.backend.pool.free_pages,
        kv_total_pages=engine.backend.pool.pages,
        memory_bytes=engine.backend.memory_bytes(),
        power_watts=engine.energy.watts,
        power_cap_watts=_cap_watts(engine),
        power_is_measured=engine.energy.is_measured,
        clock_s=engine.clock_s,
        iteration_s=engine.iteration_s,
        unloaded_tpot_s=engine.unloaded_tpot_s,
        limits=limits,
        pricing=pricing_of(engine, decoding),
        tiers=_tiers(engine.backend),
        draft_entropy=s.draft_entropy[0].copy(),
    )


def _cap_watts(engine: Engine) -> float:
    """The cap, or inf.

    A device that is modelled keeps to it and says so by its meter. On a live one it is a share of
    the power model's peak, shown and not enforced.
    """
    kept: float | None = getattr(engine.power, "cap_watts", None)
    if kept is not None:
        return kept
    disturbances = engine.disturbances
    if disturbances is None or not disturbances.has("power_cap"):
        return float("inf")
    share = disturbances.value("power_cap", engine.clock_s)
    return share * engine.power.model.peak_watts if share < 1.0 else float("inf")


def _tiers(backend: Backend) -> tuple[int, ...] | None:
    """Tokens that the target has CUDA graphs for (`models.graphed`), None where it has none."""
    tiers: tuple[int, ...] | None = getattr(getattr(backend, "decoder", None), "token_tiers", None)
    return tiers
