"""A decision from view to plan by class in one compiled call: features, network, greedy choice.

The numbers are those of `policies.features`, `policies.network` and `policies.action_codec`: the
features to the last bit, what comes out of the network to the rounding of its sums, which NumPy
adds in another order. `policies.compiled_controller` hands it the view and holds what it remembers.
"""

from __future__ import annotations

from math import tanh
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.kernels.inner import INNER
from engine.protocol import Floats, Ints
from policies.compiled_features import Seen, fill_classes, fill_engine, fill_tails
from policies.features import ACCEPTANCE, BY_CLASS, EVIDENCE, PREVIOUS, SINCE, SLACK_MIN
from policies.fleet_features import inside
from policies.fleet_shifts import look_by_class

DEPTH, WIDTH, NODES, MARGIN = range(4)
DIMENSIONS = 4


class Policy(NamedTuple):
    """What an exported manifest says, as the kernel takes it."""

    low: Floats  # [F] lower bounds of the features
    mean: Floats  # [F]
    scale: Floats  # [F]
    clip: float  # of normalised features
    sizes: Ints  # [L] from the observation to the outputs
    weights: NDArray[np.float32]  # layer by layer [in, out], and its bias
    is_tanh: bool
    nvec: Ints  # [D]
    tiers: Floats  # [4, most] values of depth, width, nodes and margin
    most: Floats  # [3] the engine's limits, of which the plan in force is shown as shares


class Memory(NamedTuple):
    """What is remembered between decisions, and where they are worked out."""

    watched: Any  # [C] `policies.fleet_shifts.WATCHED`
    request: Ints  # [S] who decoded in each slot at the last look, -1 for nobody
    looked_s: Floats  # [1] clock of the last look, -1 before the first
    in_force: Floats  # [4, C] depth, width, nodes and margin
    chosen: Ints  # [D] tier indices
    exact: Floats  # [F] of what follows, nothing means anything between two decisions
    observation: NDArray[np.float32]  # [F]
    count: Ints  # [C]
    newcomers: Ints  # [C]
    past: Floats  # [2, C]
    layers: NDArray[np.float32]  # [2, widest]


@njit(cache=True, error_model="numpy")
def decide(seen: Seen, ordinary_s: float, planned_s: float, policy: Policy, memory: Memory) -> bool:
    """Let the greedy choice be in force; False, and nothing was decided, where a feature of
    `memory.observation` is no number.

    The steps are those of `policies.predicted_cost.predicted_steps`, NaN without a profile.
    """
    count, exact, classes = memory.count, memory.exact, len(memory.count)
    block = exact[: classes * BY_CLASS].reshape(classes, BY_CLASS)
    count[:] = 0
    exact[:] = 0.0
    fill_classes(seen, len(seen.active), count, block)
    for c in range(classes):
        for part in range(MARGIN):
            block[c, PREVIOUS + part] = memory.in_force[part, c] / policy.most[part]
        block[c, PREVIOUS + MARGIN] = memory.in_force[MARGIN, c]
    _look(seen, block, memory)
    fill_tails(seen, memory.past, block)
    fill_engine(seen, count, ordinary_s, planned_s, exact[classes * BY_CLASS :])
    for i in range(len(exact)):
        memory.observation[i] = inside(exact[i], policy.low[i])
        if not np.isfinite(memory.observation[i]):
            return False
    _choose(memory.layers[_forward(policy, memory)], policy.nvec, memory.chosen)
    for c in range(classes):
        for part in range(DIMENSIONS):
            tier = memory.chosen[c * DIMENSIONS + part]
            memory.in_force[part, c] = policy.tiers[part, tier]
    return True


@njit(cache=True)
def expand(
    active: NDArray[np.bool_], slo_class: Ints, in_force: Floats, sizes: Ints, margin: Floats
) -> None:
    """Give every slot [S] the plan [4, C] of its class, idle ones the first's: `sizes` [3, S]."""
    for s in range(len(active)):
        c = slo_class[s] if active[s] else 0
        sizes[DEPTH, s] = int(in_force[DEPTH, c])
        sizes[WIDTH, s] = int(in_force[WIDTH, c])
        sizes[NODES, s] = int(in_force[NODES, c])
        margin[s] = in_force[MARGIN, c]


@njit(**INNER, error_model="numpy")
def _look(seen: Seen, block: Floats, memory: Memory) -> None:
    """As `policies.shifts.Shifts.look`, and what `policies.features.past_of` makes of it."""
    watched, request, looked_s = memory.watched, memory.request, memory.looked_s
    elapsed_s, is_first = seen.clock_s - looked_s[0], looked_s[0] < 0.0
    if elapsed_s > 0.0:
        memory.newcomers[:] = 0
        for s in range(len(request)):
            now = seen.request[s] if seen.active[s] else -1
            if seen.active[s] and now != request[s]:
                memory.newcomers[seen.slo_class[s]] += 1
            request[s] = now
        look_by_class(
            watched, is_first, seen.clock_s, elapsed_s, seen.iteration_s, seen.queued,
            memory.newcomers, block[:, ACCEPTANCE], block[:, EVIDENCE], block[:, SINCE],
            seen.prefilling, seen.unloaded_tpot_s,
        )  # fmt: skip
        looked_s[0] = seen.clock_s
    for c in range(len(watched)):
        memory.past[0, c] = watched[c].rate_hz
        memory.past[1, c] = watched[c].changed_s


@njit(**INNER)
def _forward(policy: Policy, memory: Memory) -> int:
    """In which of `memory.layers` the network's outputs stand.

    Not these themselves: a caller that counts references would count what nobody counted here.
    """
    sizes, weights, last = policy.sizes, policy.weights, len(policy.sizes) - 2
    x = memory.layers[0]
    for i in range(sizes[0]):
        # Float64 until the last step, as VecNormalize computes it.
        scaled = (memory.observation[i] - policy.mean[i]) / policy.scale[i]
        x[i] = min(max(scaled, -policy.clip), policy.clip)
    at = 0
    for layer in range(last + 1):
        fan_in, fan_out = sizes[layer], sizes[layer + 1]
        y = memory.layers[(layer + 1) % 2]
        bias = at + fan_in * fan_out
        for i in range(fan_out):
            y[i] = weights[bias + i]
        # Input by input, so that the inner loop runs over outputs that do not wait for each other.
        for j in range(fan_in):
            row, value = at + j * fan_out, x[j]
            for i in range(fan_out):
                y[i] += weights[row + i] * value
        if layer < last:
            for i in range(fan_out):
                y[i] = tanh(y[i]) if policy.is_tanh else max(y[i], np.float32(0.0))
        at, x = bias + fan_out, y
    return (last + 1) % 2


@njit(**INNER)
def _choose(outputs: NDArray[np.float32], nvec: Ints, chosen: Ints) -> None:
    """The likeliest tier of every dimension [D]; of equals the lowest."""
    first = 0
    for d in range(len(nvec)):
        best = 0
        for tier in range(1, nvec[d]):
            if outputs[first + tier] > outputs[first + best]:
                best = tier
        chosen[d] = best
        first += nvec[d]
