"""Six workloads on which slack-priced is compared with AdaServe.

AdaServe's own two keep their objectives and their speed. The others are served on the same machine
under the objectives of figure 14; prompts are cut at 2,048 tokens and answers at 256. Windows of
production traces are drawn by seed. The shifting load's disturbances are `shifting_load.toml`'s.

Rates are ours, of a few trial runs in which the other contenders were seen too, and are meant to
have AdaServe attain 60 to 90 %; those of Mooncake and of the shifting load were not looked at
again after they were raised. So they were not fixed blindly. No constant of a controller was
searched on any of the six; AdaServe's are those of `adaserve_constants`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.adaserve_traces import OUTPUT_TOKENS, PEAKS, PROMPT_TOKENS, need_data, world_of
from benchmarks.published_world import World
from engine.workload import TraceUse, WorkloadConfig, load_config

OBJECTIVES_S = {"coding": 0.036, "chat": 0.050, "summarization": 0.150}
SHIFTING = Path(__file__).with_name("shifting_load.toml")
WINDOW_S = 240.0


def peaks(quick_s: float | None) -> World:
    """Figure 14."""
    return world_of(PEAKS, quick_s)


def strict(quick_s: float | None) -> World:
    """Figure 11 at 0.8: coding is promised less than an unloaded machine takes."""
    return world_of("fig11/slo0.8_ol256", quick_s)


def azure(quick_s: float | None) -> World:
    """Azure 2023, code and chat on one clock."""
    return _window("azure", "azure2023", "", 1.2, quick_s)


def mooncake(quick_s: float | None) -> World:
    """Kimi's chat; nearly all prompts are cut."""
    return _window("mooncake", "mooncake", "", 2.2, quick_s)


def servegen(quick_s: float | None) -> World:
    """Alibaba's busiest clients, days of drift in one window."""
    return _window("servegen", "servegen", "#m-large", 4.0, quick_s)


def shifting(quick_s: float | None) -> World:
    """Drawn arrivals whose rate, mix and acceptance change on the committed schedule."""
    config = load_config(SHIFTING)
    if quick_s is not None:
        config = _shortened(config, quick_s)
    return World(config, OBJECTIVES_S)


WORKLOADS: dict[str, Callable[[float | None], World]] = {
    "fig. 14": peaks,
    "fig. 11 at 0.8": strict,
    "Azure code + chat": azure,
    "Mooncake": mooncake,
    "ServeGen": servegen,
    "shifting load": shifting,
}


def _window(reader: str, folder: str, part: str, rate_rps: float, quick_s: float | None) -> World:
    source = f"{reader}:{need_data(folder)}{part}"
    return World(
        WorkloadConfig(
            name=reader,
            duration_s=quick_s or WINDOW_S,
            rate_rps=rate_rps,
            max_tokens=OUTPUT_TOKENS,
            prompt_tokens=PROMPT_TOKENS,
            trace=TraceUse(source, draw_start=True),
        ),
        OBJECTIVES_S,
    )


def _shortened(config: WorkloadConfig, length_s: float) -> WorkloadConfig:
    kept = [d for d in config.disturbances if d.end_s <= length_s]
    return replace(config, duration_s=length_s, disturbances=tuple(kept))
