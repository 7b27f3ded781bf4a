"""What a tree of given shape would emit at the places of a recording, for all places at once.

For tables and checks; serving looks up one place at a time. NumPy only.
"""

from __future__ import annotations

import numpy as np

from engine.protocol import Bools, Ints
from engine.replay.recording import ROOT, Recording


def on_path(r: Recording) -> Bools:
    """Which nodes [M] are, with all nodes above them, the text's own tokens."""
    place = places_of_nodes(r)
    at = roots(r)[place] + r.depth
    matches = r.token == r.tokens[np.minimum(at, len(r.tokens) - 1)]
    # `at` may point into the next text.
    matches &= at < np.repeat(r.first_token[1:], np.diff(r.first_place))[place]
    path = matches & (r.parent == ROOT)
    for depth in range(2, int(r.depth.max(initial=0)) + 1):
        nodes = np.flatnonzero(matches & (r.depth == depth))
        path[nodes] = path[r.first_node[place[nodes]] + r.parent[nodes]]
    return path


def accepted_lengths(r: Recording, path: Bools, depth: int, width: int, nodes: int) -> Ints:
    """Tokens emitted [P], bonus included, from the tree of such a plan; `path` is `on_path`'s."""
    place = places_of_nodes(r)
    left = np.repeat(r.first_token[1:], np.diff(r.first_place)) - 1 - roots(r)
    # The engine drafts no deeper than what a request may still emit, the bonus token apart.
    deepest = np.minimum(depth, left - 1)[place]
    inside = (r.widths >> (width - 1) & 1).astype(bool) & (r.depth <= deepest)
    before = np.concatenate(([0], inside.cumsum()))
    kept = inside & (before[:-1] - before[r.first_node[place]] < nodes)
    accepted = np.bincount(place[kept & path], minlength=r.places)
    return np.minimum(accepted + 1, left)


def mean_accepted(r: Recording, lengths: Ints) -> float:
    """Tokens an iteration where each one goes on behind what the last emitted, as serving does."""
    emitted = iterations = 0
    for first, end in zip(r.first_place[:-1], r.first_place[1:], strict=True):
        place = first
        while place < end:
            place += lengths[place]
            iterations += 1
        emitted += int(end - first)
    return emitted / iterations if iterations else float("nan")


def places_of_nodes(r: Recording) -> Ints:
    """The place [M] of every node."""
    return np.repeat(np.arange(r.places), np.diff(r.first_node))


def roots(r: Recording) -> Ints:
    """Where among the recording's tokens the root of every place stands [P]."""
    places = np.diff(r.first_place)
    first = np.repeat(r.first_token[:-1] + r.prompt_tokens - r.first_place[:-1], places)
    return first + np.arange(r.places)
