"""What passes cost and draw, as tables over whole tokens: a hardware profile for kernels.

A fleet's passes have bounded sizes, so each curve is evaluated once for every size that may come,
by `engine.profile.cost_model` itself; the other terms are its formula in its order of operations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from engine.profile.hardware_profile import HardwareProfile
from engine.protocol import Floats
from engine.replay.clock import ModelledClock, ProfileMeter, stage_power
from engine.settings import EngineSettings

PASSES = ("verify", "draft_first", "draft_next", "prefill", "host")
VERIFY, DRAFT_FIRST, DRAFT_NEXT, PREFILL, HOST = range(len(PASSES))
TERMS = np.dtype([("kv_token_s", "f8"), ("attended_s", "f8"), ("request_s", "f8")])
POWER = np.dtype([("tokens", "f8"), ("watts", "f8")])


class Costs(NamedTuple):
    """Of every kind of pass in PASSES, and what passes or steps draw."""

    curve_s: Floats  # [PASSES, N] by tokens
    terms: Any  # [PASSES] TERMS
    power: Any  # [K] POWER of whole steps, ascending in tokens
    by_stage: bool  # every pass draws its own watts
    pass_watts: Floats  # [PASSES, N] by tokens, where it is so
    idle_watts: float  # of the device while nothing runs


def tabulate(profile: HardwareProfile, settings: EngineSettings) -> Costs:
    """The profile's costs for every pass that an engine of that size can make."""
    limits = settings.limits
    most_tokens = {
        "verify": limits.slots * (limits.max_nodes + 1),
        "draft_first": limits.slots * settings.capacity_tokens,
        "draft_next": limits.slots * limits.max_width,
        "prefill": settings.prefill_tokens,
        "host": limits.slots * (limits.max_nodes + 1),
    }
    curve_s = np.full((len(PASSES), max(most_tokens.values()) + 1), np.nan)
    terms = np.zeros(len(PASSES), TERMS)
    for i, name in enumerate(PASSES):
        cost, sizes = getattr(profile, name), range(most_tokens[name] + 1)
        curve_s[i, : len(sizes)] = [cost.curve.at(float(tokens)) for tokens in sizes]
        terms[i] = (cost.kv_token_s, cost.attended_s, cost.request_s)
    power = np.zeros(len(profile.power.tokens), POWER)
    power["tokens"], power["watts"] = profile.power.tokens, profile.power.watts
    stages, pass_watts = stage_power(profile), np.zeros(curve_s.shape)
    if stages is not None:
        for i, name in enumerate(PASSES):
            sizes = range(most_tokens[name] + 1)
            pass_watts[i, : len(sizes)] = [stages.watts(name, tokens) for tokens in sizes]
    idle_watts = float(ProfileMeter(profile, ModelledClock(profile)).model.idle_watts)
    return Costs(curve_s, terms, power, stages is not None, pass_watts, idle_watts)


@njit(cache=True, error_model="numpy")
def pass_s(costs: Costs, kind: int, tokens: int, kv_tokens: int, requests: int) -> float:
    """Seconds of one pass, as `PassCost.at` has them."""
    terms = costs.terms[kind]
    attended = terms.attended_s * tokens * kv_tokens / max(float(requests), 1.0)
    rest = terms.kv_token_s * kv_tokens + terms.request_s * requests
    return costs.curve_s[kind, tokens] + attended + rest


@njit(cache=True)
def work(replica: Any, costs: Costs, kind: int, tokens: int, kv_tokens: int, requests: int) -> None:
    """Do one pass of the replica's, a REPLICA: on its stopwatch, not yet on its clock."""
    seconds = pass_s(costs, kind, tokens, kv_tokens, requests)
    replica.work_s += seconds
    replica.joules += seconds * costs.pass_watts[kind, tokens]


@njit(cache=True)
def spend_since(replica: Any, begun_s: float) -> float:
    """Let the replica's clock run by the work done since that reading; returns by how much."""
    spent_s = replica.work_s - begun_s
    replica.clock_s += spent_s
    return spent_s


@njit(cache=True, error_model="numpy")
def step_joules(replica: Any, costs: Costs, tokens_per_pass: float) -> float:
    """Energy of the iteration that is over, as `ProfileMeter.end` has it; writes its `watts`."""
    busy_s = replica.iteration_s
    if not costs.by_stage:
        replica.watts = step_watts(costs, tokens_per_pass)
        return replica.watts * busy_s
    worked_s = replica.work_s - replica.work_before_s
    joules = replica.joules - replica.joules_before
    joules += costs.idle_watts * max(busy_s - worked_s, 0.0)
    replica.watts = joules / busy_s if busy_s > 0 else costs.idle_watts
    return joules


@njit(cache=True, error_model="numpy")
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
