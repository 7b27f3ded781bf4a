"""The arrays of a recording in fewer bytes: what a shard holds.

Probabilities fall from node to node, so they are stored as steps down from 1, in float32 numbers of
11 significant bits (as many as float16 has, without its narrow range). Depths follow from parents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.replay.recording import ROOT, Recording

DROPPED_BITS = 13  # of a float32's 23 of mantissa
ONE = 0x3F800000  # the bits of float32 1.0
LEAST = 2.0**-60  # smaller probabilities are stored as this
STEPS = "probability_steps"


def pack(r: Recording) -> dict[str, NDArray[Any]]:
    """Arrays by name, from which `unpack` makes the recording again, probabilities rounded."""
    levels = levels_of(r.probability)
    before = np.zeros_like(levels)
    before[1:] = levels[:-1]
    before[_firsts(r.first_node)] = 0
    arrays = r._asdict()
    del arrays["probability"], arrays["depth"]
    steps = levels - before  # modulo 2^16, as they are summed up again
    # High and low bytes apart compress better.
    return {**arrays, STEPS: np.stack((steps >> 8, steps & 255)).astype(np.uint8)}


def unpack(arrays: Mapping[str, NDArray[Any]]) -> Recording:
    """The recording that was packed. Raises KeyError, IndexError or ValueError for other arrays."""
    fields = {name: arrays[name] for name in Recording._fields if name in arrays}
    high, low = arrays[STEPS].astype(np.uint16)
    steps, first = high << 8 | low, arrays["first_node"]
    sums = np.cumsum(steps, dtype=np.uint16)  # of all places before as well
    starts = _firsts(first)
    counts = np.diff(np.append(starts, len(steps)))
    levels = sums - np.repeat(sums[starts] - steps[starts], counts)
    place_first = np.repeat(starts, counts)
    fields["probability"] = _numbers(levels)
    fields["depth"] = _depths(arrays["parent"], place_first)
    return Recording(**fields)


def rounded(probability: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities as a shard gives them back; their order stays, some become equal."""
    return _numbers(levels_of(probability))


def levels_of(probability: NDArray[np.float32]) -> NDArray[np.uint16]:
    """How many representable numbers lie between each of these and 1."""
    bits = np.clip(probability, LEAST, 1.0).astype(np.float32).view(np.uint32).astype(np.int64)
    half = 1 << (DROPPED_BITS - 1)
    return ((ONE - bits + half) >> DROPPED_BITS).astype(np.uint16)


def _numbers(levels: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (ONE - (levels.astype(np.uint32) << DROPPED_BITS)).astype(np.uint32).view(np.float32)


def _firsts(first_node: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first node of every place that has some."""
    return first_node[:-1][np.diff(first_node) > 0]


def _depths(parent: NDArray[np.uint8], first: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Depth by node: 1 below the root, else one more than its parent's."""
    depth = (parent == ROOT).astype(np.uint8)
    left = np.flatnonzero(depth == 0)
    above = first[left] + parent[left]
    while len(left):
        found = depth[above] > 0
        if not found.any():
            raise ValueError("nodes are their own ancestors")
        depth[left[found]] = depth[above[found]] + 1
        left, above = left[~found], above[~found]
    return depth
