"""What followed the latest tokens wherever they stood before in a text: n-gram continuations.

Continuations of the longest n-gram come first, and shorter ones share the probability that the
longer leave over: prediction by partial matching with escape method C and exclusions (Moffat
1990, "Implementing the PPM data compression scheme").
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.protocol import Floats, Ints

PROPOSED = -1  # mark of a token that a longer n-gram has proposed


@njit(cache=True)
def continue_beams(
    size: Ints,  # [S] nodes to continue, 0 for none
    candidate: Ints,  # [S, W] their candidates, -1 the root
    parent: Ints,  # [S, N]
    drafted: Ints,  # [S, N] tokens of the candidates
    end: Ints,  # [S] length of the text, the root being its last token
    text: Ints,  # [S, capacity]
    longest: int,  # n of the longest n-gram
    counts: Ints,  # [vocabulary], zeros on entry and on return
    token: Ints,  # [S, W, W], written
    probability: Floats,  # [S, W, W], written
) -> None:
    """Children of every node from the text before it; its path counts as its latest tokens."""
    latest = np.empty(longest, np.int64)
    for s in range(size.shape[0]):
        for place in range(size[s]):
            n = 0
            node = candidate[s, place]
            while node >= 0 and n < longest:
                latest[n] = drafted[s, node]
                node = parent[s, node]
                n += 1
            at = end[s] - 1
            while at >= 0 and n < longest:
                latest[n] = text[s, at]
                at -= 1
                n += 1
            continue_text(
                text[s, : end[s]], latest[:n], counts, token[s, place], probability[s, place]
            )


@njit(cache=True)
def continue_text(
    text: Ints,  # [n]
    latest: Ints,  # [longest] the latest tokens, the very last one first
    counts: Ints,  # [vocabulary], zeros on entry and on return
    token: Ints,  # [W], written
    probability: Floats,  # [W], written
) -> int:
    """Up to W likeliest continuations, best first; returns how many.

    At n-gram length n a token seen c times gets escape · c / (total + distinct), and lengths below
    share escape · distinct / (total + distinct). Ties go to what stood last. The places left over
    hold other tokens with probability 0.
    """
    where = np.empty(len(text), np.int64)
    length = np.empty(len(text), np.int64)
    hits = 0
    for i in range(1, len(text)):
        n = 0
        while n < len(latest) and n < i and text[i - 1 - n] == latest[n]:
            n += 1
        if n:
            where[hits], length[hits] = i, n
            hits += 1
    found = 0
    escape = 1.0
    for n in range(len(latest), 0, -1):
        total = distinct = 0
        for hit in range(hits):
            t = text[where[hit]]
            if length[hit] == n and counts[t] != PROPOSED:
                distinct += counts[t] == 0
                counts[t] += 1
                total += 1
        if total == 0:
            continue
        for hit in range(hits - 1, -1, -1):
            t = text[where[hit]]
            if length[hit] == n and counts[t] > 0:
                share = escape * counts[t] / (total + distinct)
                found = _insert(t, share, found, token, probability)
                counts[t] = PROPOSED
        escape *= distinct / (total + distinct)
    for hit in range(hits):
        counts[text[where[hit]]] = 0
    spare = 0
    for place in range(found, len(token)):
        while (token[:found] == spare).any():
            spare += 1
        token[place], probability[place] = spare, 0.0
        spare += 1
    return found


@njit(cache=True)
def _insert(t: int, share: float, found: int, token: Ints, probability: Floats) -> int:
    """Put a token at its place among the `found` best; returns how many there are now."""
    place = found
    while place > 0 and probability[place - 1] < share:
        if place < len(token):
            token[place], probability[place] = token[place - 1], probability[place - 1]
        place -= 1
    if place < len(token):
        token[place], probability[place] = t, share
    return min(found + 1, len(token))
