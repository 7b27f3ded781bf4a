"""Prompts of a wanted length from texts, and lengths clipped to what can be served.

Text is cut, not ids: a chat template that `encode` puts around it must stay whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.errors import UserError

Encode = Callable[[str], list[int]]
GUESSES = 8  # encodings that may be spent on a prompt of a wanted length
CLOSE = 0.97  # share of the wanted length that is near enough


def byte_encoder(vocab: int) -> Encode:
    """The bytes of a text as token ids below `vocab`, for networks that have no tokenizer."""
    return lambda text: [byte % vocab for byte in text.encode()]


class Bounds(NamedTuple):
    """The longest that may be served, in tokens; None is no bound."""

    prompt: int
    output: int
    context: int | None = None  # prompt and output together

    def fitted(self, prompt_tokens: int, output_tokens: int) -> tuple[int, int]:
        """Both lengths, at least 1 and clipped; the prompt gives way to the output."""
        output = max(1, min(output_tokens, self.output))
        prompt = max(1, min(prompt_tokens, self.prompt))
        if self.context is None:
            return prompt, output
        output = min(output, self.context - 1)
        return min(prompt, self.context - output), output


def cut_to(text: str, tokens: int, encode: Encode, name: str) -> list[int]:
    """Ids of the longest beginning of `text` that has at most so many tokens; by bisection."""
    best: list[int] = []
    low, high = 0, len(text)  # `low` characters fit, `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        ids = encode(text[:middle])
        if len(ids) <= tokens:
            low, best = middle, ids
        else:
            high = middle
    if not best:
        raise UserError(
            f"not one character of the {name} prompt {text[:40]!r} fits into prompt_tokens = "
            f"{tokens}; raise it"
        )
    return best


def prompt_of(texts: Sequence[str], first: int, tokens: int, encode: Encode) -> list[int]:
    """Ids of a prompt of about so many tokens: texts from `first` on, joined and cut.

    Never more than `tokens` unless the template alone is longer; within 3 % where few guesses find
    it. Deterministic.
    """
    text, at = texts[first], first
    ids = encode(text)
    while len(ids) < tokens:
        # Doubling what is there keeps long prompts from being encoded once for every text.
        wanted = len(text) * max(2.0, tokens / len(ids))
        while len(text) < wanted:
            at = (at + 1) % len(texts)
            text += "\n\n" + texts[at]
        ids = encode(text)
    if len(ids) == tokens:
        return ids
    best = encode(text[:1])
    low, low_tokens = 1, len(best)
    high, high_tokens = len(text), len(ids)
    for _ in range(GUESSES):
        if high - low <= 1 or len(best) >= CLOSE * tokens:
            break
        share = (tokens - low_tokens) / (high_tokens - low_tokens)
        middle = min(max(low + int(share * (high - low)), low + 1), high - 1)
        ids = encode(text[:middle])
        if len(ids) <= tokens:
            low, low_tokens, best = middle, len(ids), ids
        else:
            high, high_tokens = middle, len(ids)
    return best
