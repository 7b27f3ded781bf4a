"""Which candidates join the trees of a batch because each makes the whole batch faster.

The marginal rule of `policies.smart`: with L tokens expected from a step of C seconds, one more
node of path probability f that costs ΔC is taken while α · f / ΔC > L / C. What the seconds are
made of is the controller's business; where their curve is a staircase, the hull below it is convex.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.descending import descending
from engine.protocol import Bools, Floats, Ints


@njit(cache=True)
def keep_paying(
    first: Ints,
    last: Ints,
    probability: Floats,
    tokens: float,
    seconds: Floats,
    discount: float,
    most_kept: Ints,
    kept: Bools,
) -> tuple[Ints, float]:
    """Mark in `kept` [S, N] what is taken; how much of each slot [S], and the tokens with it.

    Of slot s those in first[s] … last[s] - 1 are tried, over all slots the likeliest first and of
    equals the one drafted first, until one fails; they are a tree where all of a slot are tried,
    since path probability falls along a path. `tokens` are expected without any, and
    seconds [all that are tried, and 1] is the cost with 0, 1, … of them, convex. All that are taken
    are kept but what a slot takes beyond its `most_kept` [S].
    """
    slots, most = probability.shape
    taken = np.zeros(slots, np.int64)
    total = 0
    for s in range(slots):
        total += max(last[s] - first[s], 0)
    if total == 0:
        return taken, tokens
    # On a convex curve whoever fails beside the first node fails beside any: most are left out.
    step_s = seconds[1] - seconds[0]
    chance = np.empty(total)
    where = np.empty(total, np.int64)
    n = 0
    for s in range(slots):
        for i in range(first[s], last[s]):
            if discount * probability[s, i] * seconds[0] > tokens * step_s:
                chance[n] = probability[s, i]
                where[n] = s * most + i
                n += 1
    for count, place in enumerate(descending(chance[:n])):
        f = chance[place]
        if discount * f * seconds[count] <= tokens * (seconds[count + 1] - seconds[count]):
            break
        s = where[place] // most
        kept[s, where[place] % most] = taken[s] < most_kept[s]
        taken[s] += 1
        tokens += f
    return taken, tokens


@njit(cache=True)
def costs(
    tokens: Floats,
    verify_s: Floats,
    first: int,
    more: int,
    row_s: float,
    rows: int,
    rows_each: int,
) -> Floats:
    """Seconds of steps [more + 1] that verify first, first + 1, …, first + `more` tokens.

    The verification is read off the straight lines between `verify_s` at `tokens`, level beyond
    their ends. Drafting takes `row_s` for each of `rows`, and of `rows_each` with every token more.
    """
    seconds = np.empty(more + 1)
    last = len(tokens) - 1
    at, line, slope = 0, -1, 0.0  # corner before the count, and where the line of the slope begins
    for i in range(more + 1):
        count = first + i
        while at < last and tokens[at + 1] <= count:
            at += 1
        seconds[i] = verify_s[at]
        if at < last and count > tokens[at]:
            if line < at:
                slope = (verify_s[at + 1] - verify_s[at]) / (tokens[at + 1] - tokens[at])
                line = at
            seconds[i] = slope * (count - tokens[at]) + verify_s[at]
        seconds[i] += row_s * (rows + rows_each * i)
    return seconds


@njit(cache=True)
def keep_paying_on_curve(
    first: Ints,
    last: Ints,
    probability: Floats,
    tokens: float,
    discount: float,
    corners: Floats,
    verify_s: Floats,
    verified: int,
    row_s: float,
    rows: int,
    rows_each: int,
    most_kept: Ints,
    kept: Bools,
) -> tuple[Ints, float]:
    """What `keep_paying` takes at the `costs` of steps that verify `verified` tokens and more."""
    tried = 0
    for s in range(len(first)):
        tried += max(last[s] - first[s], 0)
    seconds = costs(corners, verify_s, verified, tried, row_s, rows, rows_each)
    return keep_paying(first, last, probability, tokens, seconds, discount, most_kept, kept)


@njit(cache=True)
def draft_paying(
    first: Ints,
    last: Ints,
    probability: Floats,
    tokens: float,
    discount: float,
    corners: Floats,
    verify_s: Floats,
    verified: int,
    row_s: float,
    rows: int,
    step: int,
    depth: Ints,
    width: Ints,
    going: Bools,
) -> tuple[float, int, int]:
    """Mark as `going` [S] whose candidates of draft step `step` are taken, in part at least.

    These are first[s] … last[s] - 1, and `first` becomes `last`; `depth` and `width` [S] are the
    plan's. Returns the tokens expected, the nodes verified and the rows expanded with all of them.
    """
    # Nothing is kept yet, so that any bound will do and the marks are thrown away.
    taken, tokens = keep_paying_on_curve(
        first, last, probability, tokens, discount, corners, verify_s, verified, row_s, rows, 1,
        first, np.empty(probability.shape, np.bool_),
    )  # fmt: skip
    for s in range(len(first)):
        first[s] = last[s]
        going[s] = taken[s] > 0
        verified += taken[s]
        if going[s] and depth[s] > step:
            rows += width[s]
    return tokens, verified, rows


@njit(cache=True)
def verify_paying(
    decoding: Bools,
    size: Ints,
    probability: Floats,
    discount: float,
    corners: Floats,
    verify_s: Floats,
    row_s: float,
    rows: int,
    most_kept: Ints,
    kept: Bools,
) -> None:
    """Mark in `kept` [S, N] what is taken of all candidates, with `rows` expanded for them."""
    first, last = np.zeros(len(size), np.int64), np.zeros(len(size), np.int64)
    requests = 0
    for s in range(len(size)):
        if decoding[s]:
            requests += 1
            last[s] = size[s]
    keep_paying_on_curve(
        first, last, probability, float(requests), discount, corners, verify_s, requests, row_s,
        rows, 0, most_kept, kept,
    )  # fmt: skip


@njit(cache=True)
def lower_hull(x: Floats, y: Floats, corners: Floats) -> int:
    """Write the corners [2, points] of the largest convex curve that is nowhere above the points.

    x ascends. Returns how many corners there are.
    """
    count = 0
    for i in range(len(x)):
        while count > 1:
            before_x, before_y = corners[0, count - 2], corners[1, count - 2]
            last_x, last_y = corners[0, count - 1], corners[1, count - 1]
            # The slope does not rise at the last corner, so that it is none.
            if (y[i] - last_y) * (last_x - before_x) > (last_y - before_y) * (x[i] - last_x):
                break
            count -= 1
        corners[0, count], corners[1, count] = x[i], y[i]
        count += 1
    return count
