"""What passes cost and draw, as tables over whole tokens: a hardware profile for kernels.

A fleet's passes have bounded sizes, so each curve is evaluated once for every size that may come,
by `engine.profile.cost_model` itself; the other terms are its formula in its order of operations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from engine.kernels.inner import BORROWED, INNER
from engine.profile.hardware_profile import HardwareProfile
from engine.profile.power_model import StagePower
from engine.protocol import Floats, Ints
from engine.replay.clock import ModelledClock, ProfileMeter, stage_power
from engine.replay.power_levels import LEVELS, Level
from engine.settings import EngineSettings

PASSES = ("verify", "draft_first", "draft_next", "prefill", "host")
# Not Python's whole numbers: Numba would compile what they are handed to for each by itself.
VERIFY, DRAFT_FIRST, DRAFT_NEXT, PREFILL, HOST = map(np.int64, range(len(PASSES)))
TERMS = np.dtype([("kv_token_s", "f8"), ("attended_s", "f8"), ("request_s", "f8")])
Whole = int | np.int64
POWER = np.dtype([("tokens", "f8"), ("watts", "f8")])


class Levels(NamedTuple):
    """The same under L power caps that may come and go (`engine.replay.power_levels`)."""

    row: Ints  # [LEVELS + 1] where a level stands in what follows, -1 where it does not
    curve_s: Floats  # [L, PASSES, N]
    terms: Any  # [L, PASSES] TERMS
    pass_watts: Floats  # [L, PASSES, N]


class Costs(NamedTuple):
    """Of every kind of pass in PASSES, and what passes or steps draw."""

    curve_s: Floats  # [PASSES, N] by tokens
    terms: Any  # [PASSES] TERMS
    power: Any  # [K] POWER of whole steps, ascending in tokens
    by_stage: bool  # every pass draws its own watts
    pass_watts: Floats  # [PASSES, N] by tokens, where it is so
    idle_watts: float  # of the device while nothing runs
    levels: Levels
    stage_idle_watts: float  # likewise, where stages are told apart


def tabulate(profile: HardwareProfile, settings: EngineSettings) -> Costs:
    """The profile's costs for every pass that an engine of that size can make."""
    most_tokens = _most_tokens(settings)
    curve_s, terms = _curves(profile, most_tokens)
    power = np.zeros(len(profile.power.tokens), POWER)
    power["tokens"], power["watts"] = profile.power.tokens, profile.power.watts
    stages, pass_watts = stage_power(profile), np.zeros(curve_s.shape)
    if stages is not None:
        pass_watts = _watts(stages, most_tokens)
    idle_watts = float(ProfileMeter(profile, ModelledClock(profile)).model.idle_watts)
    nothing = np.zeros((0, *curve_s.shape))
    levels = Levels(
        np.full(LEVELS + 1, -1), nothing, np.zeros((0, len(PASSES)), TERMS), nothing.copy()
    )
    return Costs(
        curve_s, terms, power, stages is not None, pass_watts, idle_watts,
        levels, StagePower(profile).idle_watts,
    )  # fmt: skip


def with_level(costs: Costs, level: int, device: Level, settings: EngineSettings) -> Costs:
    """The costs with those of the device at one level more."""
    most_tokens, levels = _most_tokens(settings), costs.levels
    curve_s, terms = _curves(device.profile, most_tokens)
    row = levels.row.copy()
    row[level] = len(levels.curve_s)
    added = Levels(
        row,
        np.concatenate([levels.curve_s, curve_s[None]]),
        np.concatenate([levels.terms, terms[None]]),
        np.concatenate([levels.pass_watts, _watts(device.power, most_tokens)[None]]),
    )
    return costs._replace(levels=added)


def _most_tokens(settings: EngineSettings) -> dict[str, int]:
    """Of every kind of pass, the largest that an engine can make."""
    limits = settings.limits
    return {
        "verify": limits.slots * (limits.max_nodes + 1),
        "draft_first": limits.slots * settings.capacity_tokens,
        "draft_next": limits.slots * limits.max_width,
        "prefill": settings.prefill_tokens,
        "host": limits.slots * (limits.max_nodes + 1),
    }


def _curves(profile: HardwareProfile, most_tokens: dict[str, int]) -> tuple[Floats, np.ndarray]:
    """Seconds [PASSES, N] by tokens, and the other terms [PASSES]."""
    curve_s = np.full((len(PASSES), max(most_tokens.values()) + 1), np.nan)
    terms = np.zeros(len(PASSES), TERMS)
    for i, name in enumerate(PASSES):
        cost, sizes = getattr(profile, name), np.arange(most_tokens[name] + 1)
        curve_s[i, : len(sizes)] = cost.curve.at_each(sizes)
        terms[i] = (cost.kv_token_s, cost.attended_s, cost.request_s)
    return curve_s, terms


def _watts(stages: StagePower, most_tokens: dict[str, int]) -> Floats:
    """Watts [PASSES, N] by tokens."""
    watts = np.zeros((len(PASSES), max(most_tokens.values()) + 1))
    for i, name in enumerate(PASSES):
        sizes = np.arange(most_tokens[name] + 1)
        watts[i, : len(sizes)] = stages.free_watts(name, sizes)
    return watts


@njit(**BORROWED, error_model="numpy")
def cost_s(curve_s: float, terms: Any, tokens: Whole, kv_tokens: Whole, requests: Whole) -> float:
    """Seconds of a pass that takes `curve_s` for its tokens, as `PassCost.at` has them.

    `terms` are one of TERMS.
    """
    attended = terms.attended_s * tokens * kv_tokens / max(float(requests), 1.0)
    rest = terms.kv_token_s * kv_tokens + terms.request_s * requests
    return curve_s + attended + rest


@njit(**INNER)
def spend_since(replica: Any, begun_s: float) -> float:
    """Let the replica's clock run by the work done since that reading; returns by how much."""
    spent_s = replica.work_s - begun_s
    replica.clock_s += spent_s
    return spent_s


@njit(**INNER, error_model="numpy")
def step_joules(replica: Any, costs: Costs, tokens_per_pass: float) -> float:
    """Energy of the iteration that is over, as `ProfileMeter.end` has it; writes its `watts`."""
    busy_s = replica.iteration_s
    if not (costs.by_stage or replica.has_caps):
        replica.watts = step_watts(costs, tokens_per_pass)
        return replica.watts * busy_s
    worked_s = replica.work_s - replica.work_before_s
    joules = replica.joules - replica.joules_before
    joules += costs.stage_idle_watts * max(busy_s - worked_s, 0.0)
    replica.watts = joules / busy_s if busy_s > 0 else costs.stage_idle_watts
    return joules


@njit(**BORROWED, error_model="numpy")
def step_watts(costs: Costs, tokens_per_pass: float) -> float:
    """Power of a step whose passes have so many tokens on average, as `numpy.interp` has it."""
    power, last = costs.power, len(costs.power) - 1
    if tokens_per_pass <= power[0].tokens:
        return power[0].watts
    if tokens_per_pass >= power[last].tokens:
        return power[last].watts
    i = 0
    while power[i + 1].tokens <= tokens_per_pass:
        i += 1
    here, there = power[i], power[i + 1]
    slope = (there.watts - here.watts) / (there.tokens - here.tokens)
    return slope * (tokens_per_pass - here.tokens) + here.watts
