"""A decision from view to plan by class in one compiled call: prices, features, network, choice.

The numbers are those of `policies.features`, `policies.network` and `policies.action_codec`: the
features to the last bit, what comes out of the network to the rounding of its sums, which NumPy
adds in another order. `policies.compiled_controller` hands it the view and holds what it remembers.

Numba takes microseconds for a dozen arrays of a call, so all that is the controller's own stands in
three, and `lay_out` says where: Python and the kernel both ask it.
"""

from __future__ import annotations

from math import tanh
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.kernels.class_steps import class_steps
from engine.kernels.inner import INNER
from engine.protocol import Bools, Floats, Ints
from policies.compiled_features import Seen, fill_classes, fill_engine, fill_tails
from policies.features import ACCEPTANCE, BY_CLASS, EVIDENCE, PREVIOUS, SINCE
from policies.fleet_features import inside
from policies.fleet_shifts import look_by_class

DEPTH, WIDTH, NODES, MARGIN = range(4)
DIMENSIONS = 4
DECIDED, NO_NUMBER, NOT_TABULATED = range(3)
"""How `decide` ends."""
Singles = NDArray[np.float32]


class Priced(NamedTuple):
    """What the step is priced by: `engine.profile.pricing.BoundPricing`, as the kernel takes it."""

    curves: Floats  # [4, N]
    rates: Floats  # [4, 3]
    decoding: Bools  # [S]
    context_tokens: Ints  # [S]
    undrafted_tokens: Ints  # [S]


class Extent(NamedTuple):
    """How large everything is."""

    features: int
    inputs: int  # of the network: the features first
    classes: int
    slots: int
    dimensions: int  # of an action
    layers: int  # widths from the inputs to the outputs
    weights: int
    widest: int
    tiers: int  # most of a dimension
    is_tanh: int  # 1, or 0 for ReLU


class Own(NamedTuple):
    """What an exported manifest says, and what is remembered between decisions."""

    low: Floats  # [F] lower bounds of the features
    mean: Floats  # [inputs]
    scale: Floats  # [inputs]
    clip: Floats  # [1] of normalised inputs
    tiers: Floats  # [4, most] values of depth, width, nodes and margin
    most: Floats  # [3] the engine's limits, of which the plan in force is shown as shares
    in_force: Floats  # [4, C] depth, width, nodes and margin
    looked_s: Floats  # [1] clock of the last look, -1 before the first
    past: Floats  # [2, C] as `fill_tails` takes it; nothing means anything between two decisions:
    exact: Floats  # [F]
    tree: Floats  # [3, C] in force, within the limits
    weights: Singles  # layer by layer [in, out], and its bias
    observation: Singles  # [inputs]
    layers: Singles  # [2, widest]
    sizes: Ints  # [L] from the inputs to the outputs
    nvec: Ints  # [D]
    chosen: Ints  # [D] tier indices
    members: Ints  # [C] who decode
    newcomers: Ints  # [C]
    request: Ints  # [S] who decoded in each slot at the last look, -1 for nobody


def lay_out(extent: Extent, floats: Floats, singles: Singles, ints: Ints) -> Own:
    """Where everything stands in three arrays, which are as long as `lengths` says."""
    f, n, c = extent.features, extent.inputs, extent.classes
    mean, scale = f, f + n
    clip = scale + n
    tiers = clip + 1
    most = tiers + 4 * extent.tiers
    in_force = most + 3
    looked = in_force + 4 * c
    past = looked + 1
    exact = past + 2 * c
    tree = exact + f
    observation = extent.weights
    layers = observation + n
    nvec = extent.layers
    chosen = nvec + extent.dimensions
    count = chosen + extent.dimensions
    newcomers = count + c
    request = newcomers + c
    return Own(
        floats[:f],
        floats[mean:scale],
        floats[scale:clip],
        floats[clip:tiers],
        floats[tiers:most].reshape((4, extent.tiers)),
        floats[most:in_force],
        floats[in_force:looked].reshape((4, c)),
        floats[looked:past],
        floats[past:exact].reshape((2, c)),
        floats[exact:tree],
        floats[tree : tree + 3 * c].reshape((3, c)),
        singles[:observation],
        singles[observation:layers],
        singles[layers : layers + 2 * extent.widest].reshape((2, extent.widest)),
        ints[:nvec],
        ints[nvec:chosen],
        ints[chosen:count],
        ints[count:newcomers],
        ints[newcomers:request],
        ints[request : request + extent.slots],
    )


def lengths(extent: Extent) -> tuple[int, int, int]:
    """Of the three arrays."""
    c = extent.classes
    return (
        2 * extent.features + 2 * extent.inputs + 4 * extent.tiers + 9 * c + 5,
        extent.weights + extent.inputs + 2 * extent.widest,
        extent.layers + 2 * extent.dimensions + 2 * c + extent.slots,
    )


lay_out_compiled = njit(inline="always")(lay_out)


@njit(cache=True, error_model="numpy")
def decide(
    seen: Seen,
    priced: Priced,
    is_priced: bool,
    ordinary_s: float,
    planned_s: float,
    sizes: Ints,  # an `Extent`: in one array it comes over in a fifth of the time
    floats: Floats,
    singles: Singles,
    ints: Ints,
    watched: Any,  # [C] `policies.fleet_shifts.WATCHED`
) -> int:
    """Let the greedy choice be in force.

    Nothing is decided where a feature of `Own.observation` is NO_NUMBER, nor even looked at where a
    price is NOT_TABULATED. Where `is_priced` says that nobody can be asked here, the two steps are
    as given, UNPRICED without a profile. Of the network's inputs only the features are written.
    """
    extent = Extent(
        sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[7], sizes[8],
        sizes[9],
    )  # fmt: skip
    own = lay_out_compiled(extent, floats, singles, ints)
    count, exact, classes = own.members, own.exact, extent.classes
    if is_priced:
        for c in range(classes):
            for part in range(MARGIN):
                own.tree[part, c] = min(own.in_force[part, c], own.most[part])
        ordinary_s, planned_s = class_steps(
            priced.curves, priced.rates, priced.decoding, priced.context_tokens,
            priced.undrafted_tokens, seen.slo_class, own.tree,
        )  # fmt: skip
        if np.isnan(planned_s):
            return NOT_TABULATED
    block = exact[: classes * BY_CLASS].reshape((classes, BY_CLASS))
    count[:] = 0
    exact[:] = 0.0
    fill_classes(seen, len(seen.active), count, block)
    for c in range(classes):
        for part in range(MARGIN):
            block[c, PREVIOUS + part] = own.in_force[part, c] / own.most[part]
        block[c, PREVIOUS + MARGIN] = own.in_force[MARGIN, c]
    _look(seen, block, own, watched)
    fill_tails(seen, own.past, block)
    fill_engine(seen, count, ordinary_s, planned_s, exact[classes * BY_CLASS :])
    for i in range(len(exact)):
        own.observation[i] = inside(exact[i], own.low[i])
        if not np.isfinite(own.observation[i]):
            return NO_NUMBER
    _choose(own.layers[_forward(extent, own)], own.nvec, own.chosen)
    for c in range(classes):
        for part in range(DIMENSIONS):
            own.in_force[part, c] = own.tiers[part, own.chosen[c * DIMENSIONS + part]]
    return DECIDED


@njit(cache=True)
def expand(active: Bools, slo_class: Ints, in_force: Floats, sizes: Ints, margin: Floats) -> None:
    """Give every slot [S] the plan [4, C] of its class, idle ones the first's: `sizes` [3, S]."""
    for s in range(len(active)):
        c = slo_class[s] if active[s] else 0
        sizes[DEPTH, s] = int(in_force[DEPTH, c])
        sizes[WIDTH, s] = int(in_force[WIDTH, c])
        sizes[NODES, s] = int(in_force[NODES, c])
        margin[s] = in_force[MARGIN, c]


@njit(**INNER, error_model="numpy")
def _look(seen: Seen, block: Floats, own: Own, watched: Any) -> None:
    """As `policies.shifts.Shifts.look`, and what `policies.features.past_of` makes of it."""
    request, looked_s = own.request, own.looked_s
    elapsed_s, is_first = seen.clock_s - looked_s[0], looked_s[0] < 0.0
    if elapsed_s > 0.0:
        own.newcomers[:] = 0
        for s in range(len(request)):
            now = seen.request[s] if seen.active[s] else -1
            if seen.active[s] and now != request[s]:
                own.newcomers[seen.slo_class[s]] += 1
            request[s] = now
        look_by_class(
            watched, is_first, seen.clock_s, elapsed_s, seen.iteration_s, seen.queued,
            own.newcomers, block[:, ACCEPTANCE], block[:, EVIDENCE], block[:, SINCE],
            seen.prefilling, seen.unloaded_tpot_s,
        )  # fmt: skip
        looked_s[0] = seen.clock_s
    for c in range(len(watched)):
        own.past[0, c] = watched[c].rate_hz
        own.past[1, c] = watched[c].changed_s


@njit(**INNER)
def _forward(extent: Extent, own: Own) -> int:
    """In which of `Own.layers` the network's outputs stand.

    Not these themselves: a caller that counts references would count what nobody counted here.
    """
    sizes, weights, last, clip = own.sizes, own.weights, len(own.sizes) - 2, own.clip[0]
    x = own.layers[0]
    for i in range(sizes[0]):
        # Float64 until the last step, as VecNormalize computes it.
        scaled = (own.observation[i] - own.mean[i]) / own.scale[i]
        x[i] = min(max(scaled, -clip), clip)
    at = 0
    for layer in range(last + 1):
        fan_in, fan_out = sizes[layer], sizes[layer + 1]
        y = own.layers[(layer + 1) % 2]
        bias = at + fan_in * fan_out
        for i in range(fan_out):
            y[i] = weights[bias + i]
        # Input by input, so that the inner loop runs over outputs that do not wait for each other.
        for j in range(fan_in):
            start, value = at + j * fan_out, x[j]
            row = weights[start : start + fan_out]
            for i in range(fan_out):
                y[i] += row[i] * value
        if layer < last:
            for i in range(fan_out):
                y[i] = tanh(y[i]) if extent.is_tanh == 1 else max(y[i], np.float32(0.0))
        at, x = bias + fan_out, y
    return (last + 1) % 2


@njit(**INNER)
def _choose(outputs: Singles, nvec: Ints, chosen: Ints) -> None:
    """The likeliest tier of every dimension [D]; of equals the lowest."""
    first = 0
    for d in range(len(nvec)):
        best = 0
        for tier in range(1, nvec[d]):
            if outputs[first + tier] > outputs[first + best]:
                best = tier
        chosen[d] = best
        first += nvec[d]
