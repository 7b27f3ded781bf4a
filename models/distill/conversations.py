"""What the target is made to write: a prompt of its own, begun by a starter, and its answer.

Each slot of the generator holds one `Conversation`: forced tokens first (the chat template, the
starter or a given prompt), then sampled prompt tokens, then the turn's end (forced), then the
greedy answer that the head is trained on.
"""

from __future__ import annotations

import gzip
import json
import tomllib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from models.errors import UserError
from models.tokenizer import Tokenizer

LOOP_TOKENS = 24  # an answer that repeats its last 24 tokens exactly has fallen into a loop


@dataclass
class Conversation:
    """One sequence under way; `tokens` includes everything fed to the target so far."""

    kind: str
    forced: deque[int]
    prompt_left: int  # tokens that the target may still write as the user
    answer_left: int
    tokens: list[int] = field(default_factory=list)
    answer_start: int = -1  # index of the first answer token, -1 while still in the prompt

    def writes_prompt(self) -> bool:
        """Whether the next token of the target is sampled as part of the user's turn."""
        return self.answer_start < 0


class ConversationSource:
    """Draws new conversations in the proportions of a starters file."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        starters: Path,
        given: list[str],
        answer_tokens: int,
        generator: np.random.Generator,
    ) -> None:
        self.tokenizer, self.given, self.answer_tokens = tokenizer, given, answer_tokens
        self.generator = generator
        self.classes = tomllib.loads(starters.read_text())
        if not given:
            self.classes.pop("given", None)
        self.kinds = list(self.classes)
        weights = np.array([self.classes[kind]["weight"] for kind in self.kinds])
        self.shares = weights / weights.sum()
        # The template around a user's turn: what two different turns have in common.
        one, two = tokenizer.chat_prompt("a"), tokenizer.chat_prompt("b")
        turn = next(i for i, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)
        self.header, self.turn_end = one[:turn], one[turn + 1 :]

    def draw(self) -> Conversation:
        """A new conversation; its header is left to the caller, who shares it among slots."""
        kind = str(self.generator.choice(self.kinds, p=self.shares))
        entry = self.classes[kind]
        if kind == "given":
            text = self.given[int(self.generator.integers(len(self.given)))]
            forced = self.tokenizer.encode(text)[: entry["tokens"]] + self.turn_end
            start = len(self.header) + len(forced)
            return Conversation(kind, deque(forced), 0, self.answer_tokens, answer_start=start)
        text = str(self.generator.choice(entry["starts"]))
        return Conversation(
            kind, deque(self.tokenizer.encode(text)), entry["tokens"], self.answer_tokens
        )

    def accept(self, conversation: Conversation, token: int) -> bool:
        """Take the token that the target wrote; True when the conversation is complete."""
        if conversation.writes_prompt():
            conversation.prompt_left -= 1
            if token == self.tokenizer.eos_id or conversation.prompt_left <= 0:
                conversation.forced.extend(self.turn_end)
                conversation.answer_start = len(conversation.tokens) + len(self.turn_end)
            else:
                conversation.forced.append(token)
            return False
        conversation.answer_left -= 1
        if token == self.tokenizer.eos_id or conversation.answer_left <= 0:
            conversation.tokens.append(token)
            return True
        conversation.forced.append(token)
        tail = conversation.tokens[-2 * LOOP_TOKENS :]
        started = len(conversation.tokens) - conversation.answer_start > 4 * LOOP_TOKENS
        return started and tail[:LOOP_TOKENS] == tail[LOOP_TOKENS:]


def read_prompts(path: Path) -> list[str]:
    """First turns of a JSONL file (plain or .gz) with `prompt` or `turns` in each line."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        return [row["prompt"] if "prompt" in row else row["turns"][0] for row in rows]
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise UserError(
            f"{path}: {error}; expected a JSONL file with 'prompt' or 'turns' in every line"
        ) from error
