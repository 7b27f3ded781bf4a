"""Who asks for what, and when: workloads, their prompts, and the requests made from them."""

from engine.workload.arrivals import Span, draw_spans
from engine.workload.build import build_requests
from engine.workload.config import (
    Regime,
    Shifts,
    WorkloadConfig,
    config_from_table,
    load_config,
)
from engine.workload.presets import PRESETS, workload
from engine.workload.prompt_set import PromptSet

__all__ = [
    "PRESETS",
    "PromptSet",
    "Regime",
    "Shifts",
    "Span",
    "WorkloadConfig",
    "build_requests",
    "config_from_table",
    "draw_spans",
    "load_config",
    "workload",
]
