"""Who asks for what, and when: workloads, their prompts, and the requests made from them."""

from engine.workload.arrivals import Span, draw_spans
from engine.workload.build import DrawnRequests, Episode, build_episode, disturbances_of
from engine.workload.capacity_mix import class_shares
from engine.workload.config import WorkloadConfig
from engine.workload.disturbances import Disturbance, Disturbances, DrawnDisturbance
from engine.workload.episode import Arrivals, draw_arrivals
from engine.workload.presets import PRESETS, workload
from engine.workload.prompt_set import PromptSet
from engine.workload.regimes import Peak, Regime, Shifts
from engine.workload.seeds import FIRST_HELD_OUT_SEED, episode_generator
from engine.workload.tables import config_from_table, load_config
from engine.workload.trace_use import TraceUse
from engine.workload.traces import READERS, Trace

__all__ = [
    "FIRST_HELD_OUT_SEED",
    "PRESETS",
    "READERS",
    "Arrivals",
    "Disturbance",
    "Disturbances",
    "DrawnDisturbance",
    "DrawnRequests",
    "Episode",
    "Peak",
    "PromptSet",
    "Regime",
    "Shifts",
    "Span",
    "Trace",
    "TraceUse",
    "WorkloadConfig",
    "build_episode",
    "class_shares",
    "config_from_table",
    "disturbances_of",
    "draw_arrivals",
    "draw_spans",
    "episode_generator",
    "load_config",
    "workload",
]
