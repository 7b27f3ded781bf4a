"""A recording: texts of the target and, at every place of them, what the drafter proposed there.

How it lies on disk is `recording_folder.py`'s, who fills it is the recorder's, who reads it the
replay backend's business. NumPy only.

At a place the drafter's tree is kept for every beam width from 1 to 8 at once: a narrow beam's
nodes are no subset of a wide one's, so each node says which widths have it (`widths`, a bit each).
A plan's tree is then one scan of the place's nodes, which stand in the order in which the engine
ranks them (ALGORITHMS.md §11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ROOT = 255
"""`parent` of the nodes at depth 1."""
NEVER = -1
"""`ended` of a text whose target did not stop by itself."""


@dataclass(frozen=True)
class Manifest:
    """What was recorded, and with what."""

    model: str
    drafter: str
    network: str
    """Shape of the drafter's network (`engine.profile.identity.network_label`)."""
    dtype: str
    vocab_size: int
    max_depth: int
    max_width: int
    max_nodes: int
    """Nodes of one (depth, width) that a place has at least, where the drafter found so many."""
    classes: tuple[str, ...]


class Recording(NamedTuple):
    """N texts with P places and M nodes. Offsets have a leading 0 and one entry more."""

    text_class: NDArray[np.uint8]  # [N] index into `Manifest.classes`
    held_out: NDArray[np.bool_]  # [N] for evaluation: no training draws it
    prompt_tokens: NDArray[np.int32]  # [N]
    ended: NDArray[np.int32]  # [N] output tokens up to the target's own end; the text goes on
    first_token: NDArray[np.int64]  # [N + 1]
    tokens: NDArray[np.int32]  # prompt and output, text after text
    # A place is an output token as the root of trees; all but a text's last have one.
    first_place: NDArray[np.int64]  # [N + 1]
    first_node: NDArray[np.int64]  # [P + 1]
    entropy: NDArray[np.float16]  # [P] nats of the drafter's distribution behind the root
    # [P] nats by which the drafter's distribution there misses the target's, over the tokens that
    # the drafter knows (`engine.drafters.divergence`).
    divergence: NDArray[np.float16]
    # The nodes of a place, likeliest first, ties to the shallower, then to the one drafted first.
    parent: NDArray[np.uint8]  # [M] index among the place's nodes, ROOT for children of the root
    depth: NDArray[np.uint8]  # [M]
    widths: NDArray[np.uint8]  # [M] bit w - 1: a beam of width w has scored it
    token: NDArray[np.int32]  # [M]
    probability: NDArray[np.float32]  # [M] product of draft probabilities from the root
    # Of children of nodes on the text's own path: the target's log probability over that of its
    # choice (for the margin rule); elsewhere the target was not asked: -inf.
    log_ratio: NDArray[np.float16]  # [M]

    @property
    def texts(self) -> int:
        """N."""
        return len(self.text_class)

    @property
    def places(self) -> int:
        """P."""
        return len(self.entropy)


OFFSETS = ("first_token", "first_place", "first_node")


def full_places(recording: Recording) -> int:
    """At how many places as many nodes stand as a place can hold: more may have been wanted there.

    Only there can a plan's tree lack a node (`engine.replay.kept_nodes`).
    """
    return int((np.diff(recording.first_node) >= ROOT).sum())


def join(parts: list[Recording]) -> Recording:
    """Several recordings as one, texts in order. Raises ValueError for none."""
    if not parts:
        raise ValueError("no recording to join")
    joined: dict[str, Any] = {}
    for name in Recording._fields:
        arrays = [getattr(part, name) for part in parts]
        if name in OFFSETS:
            counts = np.concatenate([np.diff(array) for array in arrays])
            joined[name] = np.concatenate(([0], counts.cumsum())).astype(np.int64)
        else:
            joined[name] = np.concatenate(arrays)
    return Recording(**joined)


def select_texts(recording: Recording, chosen: NDArray[np.int64]) -> Recording:
    """The texts with these indices, in that order."""
    return join([_text(recording, int(i)) for i in chosen])


def _text(recording: Recording, i: int) -> Recording:
    tokens = slice(*recording.first_token[i : i + 2])
    places = slice(*recording.first_place[i : i + 2])
    nodes = slice(*recording.first_node[[places.start, places.stop]])
    cut: dict[str, Any] = {}
    for name in Recording._fields:
        array = getattr(recording, name)
        if name in ("text_class", "held_out", "prompt_tokens", "ended"):
            cut[name] = array[i : i + 1]
        elif name == "tokens":
            cut[name] = array[tokens]
        elif name in ("entropy", "divergence"):
            cut[name] = array[places]
        elif name == "first_node":
            cut[name] = array[places.start : places.stop + 1] - array[places.start]
        elif name in OFFSETS:
            cut[name] = array[i : i + 2] - array[i]
        else:
            cut[name] = array[nodes]
    return Recording(**cut)


def contradiction(r: Recording) -> str:
    """What in the arrays does not fit together, or nothing."""
    for name in OFFSETS:
        offsets = getattr(r, name)
        if offsets[0] != 0 or (np.diff(offsets) < 0).any():
            return f"{name} does not ascend from 0"
    if not len(r.first_token) == len(r.first_place) == r.texts + 1:
        return "the texts' offsets are not one more than the texts"
    if r.first_token[-1] != len(r.tokens) or r.first_place[-1] != r.places:
        return "texts end elsewhere than the tokens and places do"
    if len(r.divergence) != r.places:
        return "not every place has a divergence"
    if len(r.first_node) != r.places + 1 or r.first_node[-1] != len(r.parent):
        return "places end elsewhere than the nodes do"
    finite = all(np.isfinite(a).all() for a in (r.probability, r.entropy, r.divergence))
    if not finite or np.isnan(r.log_ratio).any():
        return "it has numbers that are none"
    return ""
