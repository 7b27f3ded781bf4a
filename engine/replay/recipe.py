"""Which texts a recording is made of: prompts by class, how long, and which are held out.

The same recipe over the same prompts gives the same list, and a longer one begins with it. Light on
imports.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.errors import UserError
from engine.workload.lengths import Encode

if TYPE_CHECKING:
    from engine.workload.prompt_set import PromptSet

CLASSES = ("coding", "chat", "maths", "summarization")


@dataclass(frozen=True)
class Recipe:
    """What was asked for."""

    prompts: str = ""
    """File or folder of prompts, "" for the shipped set."""
    classes: tuple[str, ...] = CLASSES
    texts_per_class: int = 60
    tokens: int = 128
    """Output tokens of every text; a request for more cannot be replayed."""
    prompt_tokens: int = 320
    """Longest prompt; longer ones are cut to it."""
    held_out_share: float = 0.5
    """Share of a class's texts that no training draws."""
    seed: int = 0

    def check(self) -> None:
        """Raise UserError for a value that cannot be meant."""
        for name, least in (("texts_per_class", 1), ("tokens", 2), ("prompt_tokens", 1)):
            if getattr(self, name) < least:
                flag = f"--{name.replace('_', '-')}"
                raise UserError(f"{flag} {getattr(self, name)}: expected at least {least}")
        if not 0.0 <= self.held_out_share <= 1.0:
            raise UserError(
                f"--held-out-share {self.held_out_share}: expected a number from 0 to 1"
            )
        if self.seed < 0:
            raise UserError(f"--seed {self.seed}: expected a number of at least 0")
        if not self.classes or len(set(self.classes)) < len(self.classes):
            raise UserError(f"--classes {' '.join(self.classes)}: expected each class once")


class Task(NamedTuple):
    """A text to record."""

    text_class: int  # index into the recipe's classes
    prompt: tuple[int, ...]
    held_out: bool


def choose_texts(recipe: Recipe, prompts: PromptSet, encode: Encode) -> list[Task]:
    """The recipe's texts, one class after the other in turn, no prompt twice.

    `encode` turns a text into token ids, chat template included. Raises UserError when a class has
    too few prompts.
    """
    taken: set[tuple[int, ...]] = set()
    by_class = []
    for index, name in enumerate(recipe.classes):
        texts = prompts.of(name)
        chosen: list[Task] = []
        for at in np.random.default_rng([recipe.seed, index]).permutation(len(texts)):
            prompt = tuple(_cut(texts[at], encode, recipe.prompt_tokens))
            if prompt and prompt not in taken:  # a training text must not be held out as well
                taken.add(prompt)
                chosen.append(Task(index, prompt, _held_out(len(chosen), recipe.held_out_share)))
        if len(chosen) < recipe.texts_per_class:
            raise UserError(
                f"--texts-per-class {recipe.texts_per_class}: {prompts.source} has {len(chosen)} "
                f"prompts of the class {name!r} that differ within --prompt-tokens "
                f"{recipe.prompt_tokens}; ask for fewer texts, or give more --prompts"
            )
        by_class.append(chosen[: recipe.texts_per_class])
    return [task for row in zip(*by_class, strict=True) for task in row]


def digest(tasks: Sequence[Task]) -> str:
    """Twelve hex digits that are the same for the same texts."""
    return hashlib.sha256(repr([tuple(task) for task in tasks]).encode()).hexdigest()[:12]


def _held_out(index: int, share: float) -> bool:
    """Whether a class's text is held out, spread evenly so that the number of texts is free."""
    return int((index + 1) * share) > int(index * share)


def _cut(text: str, encode: Encode, most: int) -> list[int]:
    """At most `most` token ids; text is cut, not ids, so that a chat template stays whole."""
    ids = encode(text)
    if len(ids) <= most:
        return ids
    length = bisect_right(range(1, len(text)), most, key=lambda n: len(encode(text[:n])))
    return encode(text[:length]) if length else []
