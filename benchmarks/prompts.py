"""Held-out prompts as token ids: chat template, at most 512 tokens, in a seeded order.

None of these prompts was trained on. They are read from the shared data and never shipped.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.figures import UnmeasuredError
from models.distill.conversations import read_prompts
from models.tokenizer import Tokenizer

MAX_PROMPT_TOKENS = 512
SETS = ("humaneval", "gsm8k", "mt_bench", "alpaca", "summarization")
SUMMARIZE = "Summarize: "  # how Spec-Bench begins every prompt of the category


class PromptFolder:
    """The prompt sets of a folder laid out as shared/data/prompts."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, seed: int = 0) -> None:
        self.folder, self.tokenizer, self.seed = folder, tokenizer, seed

    def ids(self, name: str) -> list[list[int]]:
        """Prompts of a set, shuffled; each prompt's second piece, if any, after all first ones."""
        texts = self._texts(name)
        order = np.random.default_rng(self.seed).permutation(len(texts))
        pieces = [list(self._pieces(texts[i], name == "summarization")) for i in order]
        deepest = max((len(p) for p in pieces), default=0)
        return [p[level] for level in range(deepest) for p in pieces if len(p) > level]

    def _texts(self, name: str) -> list[str]:
        file = "spec_bench" if name == "summarization" else name
        path = self.folder / f"{file}.jsonl.gz"
        if not path.is_file():
            raise UnmeasuredError(
                f"no prompts at {path}; put the shared data there or name the folder with --prompts"
            )
        if name != "summarization":
            return read_prompts(path)
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        return [row["turns"][0] for row in rows if row["category"] == "summarization"]

    def _pieces(self, text: str, all_of_it: bool) -> Iterator[list[int]]:
        """The prompt cut in text to fit; of an article also the rest, if it is worth a summary."""
        first = self._fitting(text)
        yield self.tokenizer.chat_prompt(first)
        rest = text[len(first) :]
        while all_of_it and len(rest) > len(first) // 4:
            piece = self._fitting(SUMMARIZE + rest.lstrip())
            yield self.tokenizer.chat_prompt(piece)
            rest = rest.lstrip()[len(piece) - len(SUMMARIZE) :]

    def _fitting(self, text: str) -> str:
        """The longest beginning of `text`, up to a word's end, whose prompt is short enough."""
        if self._fits(text):
            return text
        low, high = 1, len(text)  # text[:low] fits, text[:high] does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(text[:middle]) else (low, middle)
        space = max(text.rfind(c, 0, low) for c in " \n")
        return text[:space] if space > low // 2 else text[:low]

    def _fits(self, text: str) -> bool:
        return not text.strip() or len(self.tokenizer.chat_prompt(text)) <= MAX_PROMPT_TOKENS
