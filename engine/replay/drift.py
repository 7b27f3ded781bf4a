"""Acceptance drift on replay: recorded drafts that go wrong or come right by a keyed chance.

A factor a below 1 spoils every draft of a depth with probability 1 - a, so that each position is
accepted a times as often as recorded, given the positions before it. With a above 1, where no draft
offered behind the accepted path carries the target's next token, the likeliest of them, of
probability q, takes that token with probability min(1, (a - 1) · q / (1 - q)): a chain whose
probabilities are calibrated is then accepted a times as often. That is an approximation: behind a
draft that came right stand the drafts that were recorded behind a wrong one, mostly wrong
themselves.

The chance hangs on the episode's key, the text, the output position and the depth, and on nothing
else, so every controller meets the same drift. Probabilities stay as recorded, since a drafter
knows nothing of it, and the emitted text is the recorded one whatever is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.backends.protocol import Choices
from engine.kernels.inner import INNER
from engine.protocol import Bools, Ints
from engine.replay.lookup import Book, Cursor, ranked
from engine.replay.recorded_request import RecordedRequest
from engine.sampling.noise import stream, uniform
from engine.state import TreeState

WRONG = -1
"""Token of a spoiled draft: none of the vocabulary, so that it is wrong whatever comes."""


def episode_key(requests: Iterable[RecordedRequest]) -> np.uint64:
    """What tells an episode from others: who comes when and asks for which text, hashed."""
    asked = np.array([(request.arrival_s, request.text) for request in requests], np.float64)
    return np.uint64(int.from_bytes(blake2b(asked.tobytes(), digest_size=8).digest(), "little"))


@njit(cache=True)
def chance(key: np.uint64, text: int, position: int, depth: int) -> float:
    """The number inside (0, 1) of a depth behind an output position of a text."""
    of_text = stream(key, text)  # type: ignore[arg-type]  # Numba takes every integer
    return uniform(stream(of_text, position), depth)  # type: ignore[arg-type]


@njit(cache=True)
def comes_right(number: float, acceptance: float, probability: float) -> bool:
    """Whether a draft of that probability takes the target's token, by its depth's `chance`."""
    return number * (1.0 - probability) < (acceptance - 1.0) * probability


@njit(cache=True)
def drift(
    acceptance: float,  # factor, not 1
    key: np.uint64,
    decoding: Bools,  # [R, S]
    emitted: Ints,  # [R, S]
    book: Book,
    cursor: Cursor,
    trees: TreeState,
    choices: Choices,
) -> None:
    """Change the tokens of drafted trees, once `engine.replay.lookup.answer` has answered.

    The target never judged a token that was not recorded, so no margin lets it through.
    """
    for r in range(decoding.shape[0]):
        for s in range(decoding.shape[1]):
            if not decoding[r, s] or trees.size[r, s] == 0:
                continue
            if acceptance < 1.0:
                _spoil(r, s, acceptance, key, emitted, cursor, trees, choices)
            else:
                _mend(r, s, acceptance, key, emitted, book, cursor, trees, choices)


@njit(**INNER)
def _spoil(
    r: int,
    s: int,
    acceptance: float,
    key: np.uint64,
    emitted: Ints,
    cursor: Cursor,
    trees: TreeState,
    choices: Choices,
) -> None:
    """Make all drafts of some depths wrong."""
    size, depth = trees.size[r, s], 0  # candidates stand in order of depth
    is_spoiled = False
    for i in range(size):
        if trees.depth[r, s, i] != depth:
            depth = trees.depth[r, s, i]
            number = chance(key, cursor.text[r, s], emitted[r, s] - 1, depth)
            is_spoiled = number >= acceptance
        if is_spoiled:
            trees.token[r, s, i] = WRONG
            choices.log_ratio[r, s, i] = -np.inf


@njit(**INNER)
def _mend(
    r: int,
    s: int,
    acceptance: float,
    key: np.uint64,
    emitted: Ints,
    book: Book,
    cursor: Cursor,
    trees: TreeState,
    choices: Choices,
) -> None:
    """Walk the target's path through all that was drafted, and mend it where it breaks."""
    text = cursor.text[r, s]
    first = book.first_node[book.first_place[text] + emitted[r, s] - 1]
    node, depth, wanted = -1, 0, choices.root_token[r, s]
    while True:
        depth += 1
        best = right = -1
        for i in range(node + 1, trees.size[r, s]):
            if trees.parent[r, s, i] == node:
                best = i if best < 0 else best  # the likeliest stands first
                right = i if trees.token[r, s, i] == wanted else right
        if right < 0 and best >= 0:
            above = -1 if node < 0 else cursor.node[r, s, node]
            node_of_best = cursor.node[r, s, best]
            given_parent = conditional(book.probability, first, node_of_best, above)
            number = chance(key, text, emitted[r, s] - 1, depth)
            if comes_right(number, acceptance, given_parent):
                right = best
                trees.token[r, s, right] = wanted
                choices.log_ratio[r, s, right] = -np.inf
        if right < 0:
            return
        node, wanted = right, choices.node_token[r, s, right]


@njit(**INNER, error_model="numpy")
def conditional(probability: NDArray[np.float32], first: int, node: int, above: int) -> float:
    """Probability of a recorded node given its parent, -1 for the root; of a place at `first`.

    `probability` [M] are the recording's, of whole paths.
    """
    of_path = ranked(probability[first + node], node)
    if above < 0:
        return of_path
    return of_path / ranked(probability[first + above], above)
