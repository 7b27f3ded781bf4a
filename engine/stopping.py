"""Stop strings: where a text that was asked to end the output is complete, the output ends.

Text is made only for requests that have stop strings, and only from their outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.backends.protocol import Choices
from engine.state import TreeState

Detokenize = Callable[[list[int]], str]


def tokens_until_stop(
    output: Sequence[int], fresh: Sequence[int], stops: Sequence[str], detokenize: Detokenize
) -> int | None:
    """How many of the `fresh` tokens stay: up to the one in which a stop is complete; else None.

    The output before `fresh` holds no stop. A stop may begin there, so all of it is made into text.
    """

    def stopped(count: int) -> bool:
        text = detokenize([*output, *fresh[:count]])
        return any(stop in text for stop in stops)

    if not stopped(len(fresh)):
        return None
    return next(count for count in range(1, len(fresh) + 1) if stopped(count))


def cut_walk(slot: int, emitted: int, trees: TreeState, choices: Choices) -> None:
    """Leave a slot only the first `emitted` of the tokens that the walk let it emit."""
    length = min(int(trees.path_length[0, slot]), emitted)
    trees.accepted_length[0, slot] = emitted
    trees.path_length[0, slot] = length
    wanted = choices.root_token[0, slot]
    trees.let_through[0, slot], trees.given_up[0, slot] = 0, 0.0
    for i in range(length):
        node = trees.path[0, slot, i]
        if trees.new_tokens[0, slot, i] != wanted:
            trees.let_through[0, slot] += 1
            trees.given_up[0, slot] -= choices.log_ratio[0, slot, node]
        wanted = choices.node_token[0, slot, node]
