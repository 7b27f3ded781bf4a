"""Which disturbances a workload draws that what serves it does not act on, in words for a report.

A comparison under a drift that nobody felt would otherwise read like one that they came through.
"""

from __future__ import annotations

from typing import Literal

from engine.workload.config import WorkloadConfig
from engine.workload.disturbances import KINDS


def left_out(config: WorkloadConfig, backend: Literal["live", "replay"]) -> str:
    """A sentence about what `config` may draw and `backend` does not apply; empty: all is applied.

    Replay applies all, but cannot stretch a recorded prompt. On live a power cap is shown and not
    enforced, and no drafter is better or faster than it is.
    """
    values = _values(config)
    if backend == "replay":
        if "prompt_length" not in values:
            return ""
        return "prompt lengths change as far as recorded prompts do: the nearest is taken on replay"
    parts = []
    if max(values.get("acceptance", (1.0,))) > 1.0:
        parts.append("acceptance factors above 1 are drawn and not applied on live")
    if min(values.get("draft_time", (1.0,))) < 1.0:
        parts.append("draft-time factors below 1 are drawn and not applied on live")
    if "power_cap" in values:
        parts.append("power caps are shown to controllers and not enforced")
    return "; ".join(parts)


def _values(config: WorkloadConfig) -> dict[str, tuple[float, ...]]:
    """Smallest and largest values by kind, of those kinds that may differ from the usual."""
    found: dict[str, list[float]] = {}
    for fault in config.disturbances:
        found.setdefault(fault.kind, []).append(float(fault.value))
    for drawn in config.drawn_disturbances:
        if drawn.probability > 0:
            found.setdefault(drawn.kind, []).extend(drawn.value)
    for regime in config.regimes:
        found.setdefault("acceptance", []).append(regime.acceptance)
        found.setdefault("draft_time", []).append(regime.draft_time)
    if config.shifts is not None:
        found.setdefault("acceptance", []).extend(config.shifts.acceptance)
        if config.shifts.slow_probability > 0:
            found.setdefault("draft_time", []).append(config.shifts.slow_draft)
    return {
        kind: (min(values), max(values))
        for kind, values in found.items()
        if any(value != KINDS[kind].neutral for value in values)
    }
