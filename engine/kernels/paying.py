"""Which candidates join the trees of a batch because each makes the whole batch faster.

The marginal rule of `policies.smart`: with L tokens expected from a step of C seconds, one more
node of path probability f that costs ΔC is taken while α · f / ΔC > L / C. What the seconds are
made of is the controller's business.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Bools, Floats, Ints


@njit(cache=True)
def keep_paying(
    first: Ints,
    last: Ints,
    probability: Floats,
    tokens: float,
    seconds: Floats,
    discount: float,
) -> tuple[Bools, Ints, float]:
    """The candidates taken [S, N], how many of each slot [S], and the tokens expected with them.

    Of slot s those in first[s] … last[s] - 1 are tried, over all slots the likeliest first and of
    equals the one drafted first, until one fails; they are a tree where all of a slot are tried,
    since path probability falls along a path. `tokens` are expected without any, and
    seconds [all that are tried, and 1] is the cost with 0, 1, … of them, convex.
    """
    slots, most = probability.shape
    kept = np.zeros((slots, most), np.bool_)
    taken = np.zeros(slots, np.int64)
    total = 0
    for s in range(slots):
        total += max(last[s] - first[s], 0)
    if total == 0:
        return kept, taken, tokens
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
    for count, place in enumerate(np.argsort(-chance[:n], kind="mergesort")):
        f = chance[place]
        if discount * f * seconds[count] <= tokens * (seconds[count + 1] - seconds[count]):
            break
        kept[where[place] // most, where[place] % most] = True
        taken[where[place] // most] += 1
        tokens += f
    return kept, taken, tokens


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
    at, last = 0, len(tokens) - 1
    for i in range(more + 1):
        count = first + i
        while at < last and tokens[at + 1] <= count:
            at += 1
        seconds[i] = verify_s[at]
        if at < last and count > tokens[at]:
            slope = (verify_s[at + 1] - verify_s[at]) / (tokens[at + 1] - tokens[at])
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
) -> tuple[Bools, Ints, float]:
    """What `keep_paying` takes at the `costs` of steps that verify `verified` tokens and more."""
    tried = 0
    for s in range(len(first)):
        tried += max(last[s] - first[s], 0)
    seconds = costs(corners, verify_s, verified, tried, row_s, rows, rows_each)
    return keep_paying(first, last, probability, tokens, seconds, discount)
