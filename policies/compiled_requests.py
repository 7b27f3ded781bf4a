"""A summary of a view's requests in one compiled call: what the network is given beside features.

The numbers are those of `policies.request_features`, to the last bit, and of
`policies.request_encoder`, to the rounding of its sums. Requests come one after the other, so the
softmax of a class is kept up to date as they come (Milakov & Gimelshein 2018): what was summed is
scaled down whenever a higher score appears. `policies.compiled_by_request` hands it the view.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log1p
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.kernels.inner import INNER
from engine.protocol import Bools, Floats, Ints, View
from policies.features import EVIDENCE_HALF, POSITIONS, SINCE_ITERATIONS, SLACK_TOKENS
from policies.fleet_features import SINCE_LOGS, inside
from policies.request_encoder import QUERIES, RequestShape
from policies.request_features import ACCEPTANCE, CLASS, EVIDENCE, LOG_TOPS, SINCE, TAILS


class SeenRequests(NamedTuple):
    """What is looked at of a view, under the names and shapes of `engine.protocol.View`."""

    active: Bools
    slo_class: Ints
    slack_tokens: Floats
    tpot_objective_s: Floats
    draft_confidence: Floats
    remaining_tokens: Ints
    context_tokens: Ints
    tokens_out: Ints
    decode_time_s: Floats
    queue_age_s: Floats
    accepted: Floats
    proposed: Floats
    since_proposed: Ints
    unloaded_tpot_s: float


def seen_requests(view: View) -> SeenRequests:
    """Those of the view."""
    return SeenRequests(
        view.active,
        view.slo_class,
        view.slack_tokens,
        view.tpot_objective_s,
        view.draft_confidence,
        view.remaining_tokens,
        view.context_tokens,
        view.tokens_out,
        view.decode_time_s,
        view.queue_age_s,
        view.accepted,
        view.proposed,
        view.since_proposed,
        float(view.unloaded_tpot_s),
    )


def nobody() -> SeenRequests:
    """A view of one slot that is free."""
    one, whole, position = np.zeros(1), np.zeros(1, np.int64), np.zeros((1, 1))
    since = np.zeros((1, 1), np.int64)
    return SeenRequests(
        np.zeros(1, np.bool_), whole, one, one, one, whole, whole, whole, one, one,
        position, position, since, 1.0,
    )  # fmt: skip


class Encoder(NamedTuple):
    """An encoder's weights as the kernel takes them, and where it works."""

    sizes: Ints  # [L] from a row to what is pooled
    weights: NDArray[np.float32]  # layer by layer [in, out], and its bias
    queries: NDArray[np.float32]  # [H, heads]
    exact: Floats  # [K] a row; of what follows, nothing means anything between two calls
    layers: NDArray[np.float32]  # [2, widest]
    scores: NDArray[np.float32]  # [heads]
    highest: NDArray[np.float32]  # [C, heads] score so far
    total: NDArray[np.float32]  # [C, heads] of the weights so far


def encoder_of(
    shape: RequestShape, weights: Mapping[str, NDArray[np.float32]], classes: int
) -> Encoder:
    """`weights` hold those of `RequestShape.tensor_shapes`, already checked."""
    parts = [
        part
        for i in range(len(shape.layers) - 1)
        for part in (weights[f"request.{i}.weight"].T.ravel(), weights[f"request.{i}.bias"])
    ]
    return Encoder(
        sizes=np.array(shape.layers),
        weights=np.concatenate(parts),
        queries=np.ascontiguousarray(weights[QUERIES].T),
        exact=np.zeros(shape.layers[0]),
        layers=np.zeros((2, max(shape.layers)), np.float32),
        scores=np.zeros(shape.heads, np.float32),
        highest=np.zeros((classes, shape.heads), np.float32),
        total=np.zeros((classes, shape.heads), np.float32),
    )


@njit(cache=True, error_model="numpy")
def summarise(seen: SeenRequests, encoder: Encoder, summary: NDArray[np.float32]) -> bool:
    """Fill in the summary [C * H]; False, and it means nothing, where a row holds no number."""
    highest, total, queries = encoder.highest, encoder.total, encoder.queries
    width, heads = queries.shape
    by_head = summary.reshape(len(total), heads, width // heads)
    summary[:] = 0.0
    highest[:] = -np.inf
    total[:] = 0.0
    for s in range(len(seen.active)):
        if not seen.active[s]:
            continue
        if not _show(seen, s, encoder.exact, encoder.layers[0]):
            return False
        x, c = encoder.layers[_encode(encoder)], seen.slo_class[s]
        encoder.scores[:] = 0.0
        _add_product(x, queries, encoder.scores)
        for h in range(heads):
            _pool(x[h * by_head.shape[2] :], encoder.scores[h], h, highest[c], total[c], by_head[c])
    for c in range(len(total)):
        for h in range(heads):
            if total[c, h] > 0.0:
                by_head[c, h] /= total[c, h]
    return True


@njit(**INNER)
def _pool(
    x: NDArray[np.float32],
    score: float,
    h: int,
    highest: NDArray[np.float32],
    total: NDArray[np.float32],
    pooled: NDArray[np.float32],
) -> None:
    """Let a request of the class [heads] count in head h, by the exponential of its score."""
    weight, kept = np.float32(1.0), np.float32(1.0)
    if score > highest[h]:
        kept, highest[h] = np.float32(exp(highest[h] - score)), score
    else:
        weight = np.float32(exp(score - highest[h]))
    total[h] = total[h] * kept + weight
    of_head = pooled[h]
    for i in range(len(of_head)):
        of_head[i] = of_head[i] * kept + weight * x[i]


@njit(**INNER, error_model="numpy")
def _show(seen: SeenRequests, s: int, exact: Floats, row: NDArray[np.float32]) -> bool:
    """Fill in the row of slot s, as `observe_requests`; whether all of it are numbers."""
    token_s, held = seen.unloaded_tpot_s, min(POSITIONS, seen.proposed.shape[1])
    exact[0] = seen.slack_tokens[s] / SLACK_TOKENS
    exact[1] = token_s / seen.tpot_objective_s[s]
    exact[2] = seen.draft_confidence[s]
    exact[TAILS] = seen.remaining_tokens[s]
    exact[TAILS + 1] = seen.context_tokens[s]
    exact[TAILS + 2] = seen.tokens_out[s]
    exact[TAILS + 3] = seen.decode_time_s[s] / token_s
    exact[TAILS + 4] = seen.queue_age_s[s] / token_s
    for i in range(SINCE - TAILS):
        value = exact[TAILS + i]
        exact[TAILS + i] = log1p(0.0 if value < 0.0 else value) / LOG_TOPS[i]
    for d in range(POSITIONS):
        accepted = proposed = 0.0
        since = SINCE_ITERATIONS
        if d < held:
            accepted, proposed = seen.accepted[s, d], seen.proposed[s, d]
            since = min(seen.since_proposed[s, d], SINCE_ITERATIONS)
        exact[ACCEPTANCE + d] = (accepted + 0.5) / (proposed + 1.0)
        exact[EVIDENCE + d] = proposed / (proposed + EVIDENCE_HALF)
        exact[SINCE + d] = SINCE_LOGS[since]
    exact[CLASS:] = 0.0
    exact[CLASS + seen.slo_class[s]] = 1.0
    finite = True
    for i in range(len(exact)):
        row[i] = inside(exact[i], -1.0 if i == 0 else 0.0)
        finite &= np.isfinite(row[i])
    return finite


@njit(**INNER)
def _encode(encoder: Encoder) -> int:
    """Take the row in `encoder.layers[0]` through all of them; in which of the two it ended."""
    sizes, x, at = encoder.sizes, encoder.layers[0], 0
    for layer in range(len(sizes) - 1):
        fan_in, fan_out = sizes[layer], sizes[layer + 1]
        y, bias = encoder.layers[(layer + 1) % 2], at + fan_in * fan_out
        begins = encoder.weights[bias : bias + fan_out]
        for i in range(fan_out):
            y[i] = begins[i]
        _add_product(x, encoder.weights[at:bias].reshape(fan_in, fan_out), y)
        for i in range(fan_out):
            y[i] = max(y[i], np.float32(0.0))
        at, x = bias + fan_out, y
    return (len(sizes) - 1) % 2


@njit(**INNER)
def _add_product(
    x: NDArray[np.float32], weights: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """Add x [in] @ weights [in, out] to `out`.

    Input by input, so that the inner loop runs over outputs that do not wait for each other, and by
    slices, so that the compiler sees that no index is negative: else it takes one at a time.
    """
    for j in range(weights.shape[0]):
        row, value = weights[j], x[j]
        for i in range(len(row)):
            out[i] += row[i] * value
