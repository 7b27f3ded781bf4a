"""Stop strings: where a text that was asked to end the output is complete, the output ends.

Text is made only for requests that have stop strings, only from their outputs, and of every token
a bounded number of times, so the cost is linear in the output.

A token's text can hang on its neighbours: a character may take several tokens, and some decoders
drop a leading space. So text is made as the field's detokenizers make it (vLLM, TGI): of a window
that begins a little earlier, less what the window's beginning gives alone. The beginning moves on
where the text ends in a whole character.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.backends.protocol import Choices
from engine.request import Request
from engine.state import TreeState

Detokenize = Callable[[list[int]], str]

UNFINISHED = "\ufffd"
"""What decoders write for bytes that are no character, or none yet."""
MOST_UNFINISHED = 16
"""Tokens behind which such bytes are taken for what they are: a character has at most four."""
CHARACTER_TOKENS = 4


class StopSearch:
    """Looks for stop strings in a text that grows by a token at a time.

    It says what a search in the text of all tokens would say. The one exception is a stop string
    that itself holds U+FFFD, and that only in long runs of broken bytes or where a decoder takes
    back whole characters because a broken byte follows them (byte fallback does).
    """

    def __init__(self, stops: Sequence[str], detokenize: Detokenize) -> None:
        self.stops, self._detokenize = tuple(stops), detokenize
        self._reach = max(map(len, stops)) - 1  # characters in which a stop may have begun
        self._tail = ""  # the last of these before what is unsettled
        self._window: list[int] = []
        self._settled = 0  # tokens of the window whose text is in the tail already
        self._settled_text = ""  # what the window's decoder makes of these

    def push(self, token: int) -> bool:
        """Append a token; True when a stop string is complete in the text so far."""
        self._window.append(token)
        text = self._detokenize(self._window)
        seen = self._tail + text[len(self._settled_text) :]
        if any(stop in seen for stop in self.stops):
            return True
        unsettled = len(self._window) - self._settled
        if not text.endswith(UNFINISHED):
            self._settle(text, len(self._window), self._settled)
        elif unsettled > MOST_UNFINISHED:
            end = self._before_last_character(text)
            self._settle(self._text_of(end), end, end)
        return False

    def _settle(self, text: str, end: int, begin: int) -> None:
        """`text`, of the first `end` tokens, will not change; from `begin` on the window stays."""
        fixed = self._tail + text[len(self._settled_text) :]
        self._tail = fixed[max(len(fixed) - self._reach, 0) :]
        self._window = self._window[begin:]
        self._settled = end - begin
        self._settled_text = self._text_of(self._settled)

    def _before_last_character(self, text: str) -> int:
        """Tokens that hold no part of a character still to be completed, and cut none in two."""
        last = len(self._window) - CHARACTER_TOKENS
        ends = range(last, last - CHARACTER_TOKENS, -1)
        return next((end for end in ends if text.startswith(self._text_of(end))), last)

    def _text_of(self, count: int) -> str:
        return self._detokenize(self._window[:count])


class StopStrings:
    """The searches of all requests that have stop strings."""

    def __init__(self, detokenize: Detokenize | None) -> None:
        """Without `detokenize` there is no text, and nobody may have stop strings."""
        self._detokenize = detokenize
        self._searches: dict[int, StopSearch] = {}

    def tokens_until_stop(self, request: Request, fresh: Sequence[int]) -> int | None:
        """How many of the `fresh` tokens stay: up to the one that completes a stop; else None.

        They follow those of earlier calls, whatever slots the request had to give up in between.
        """
        if not request.stop_strings or self._detokenize is None:
            return None
        search = self._searches.get(request.id)
        if search is None:
            search = StopSearch(request.stop_strings, self._detokenize)
            self._searches[request.id] = search
        return next((n for n, token in enumerate(fresh, 1) if search.push(token)), None)

    def forget(self, request_id: int) -> None:
        """The request has ended."""
        self._searches.pop(request_id, None)


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
