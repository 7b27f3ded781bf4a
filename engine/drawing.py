"""Requests for a server from a workload: what training draws and every compared controller gets.

Puts a workload, a prompt set and a server's measured capacity together; drawing itself is
`engine.workload`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.errors import UserError
from engine.request import Request
from engine.workload import PromptSet, WorkloadConfig, build_requests

if TYPE_CHECKING:
    from engine.serving import LiveServer

Draw = Callable[[np.random.Generator], list[Request]]


def drawing(
    server: LiveServer,
    config: WorkloadConfig,
    prompts: PromptSet,
    classes: ClassTable = DEFAULT_CLASSES,
) -> Draw:
    """A function from a generator to a list of requests; every prompt is tokenized once.

    A server without a tokenizer (the tiny one of the tests) is given the bytes of a prompt.
    Raises UserError when the longest prompt and output exceed the server's context.
    """
    tokenizer = server.tokenizer
    stop_ids = frozenset() if tokenizer is None else frozenset({tokenizer.eos_id})
    vocab = server.decoder.config.vocab_size

    @cache
    def encoded(text: str) -> tuple[int, ...]:
        if tokenizer is None:
            return tuple(byte % vocab for byte in text.encode())
        return tuple(tokenizer.chat_prompt(text))

    lengths = [
        [min(len(encoded(text)), config.prompt_tokens) for text in texts]
        for name, texts in prompts.by_class.items()
        if texts and name in classes.names and (not config.mix or config.mix.get(name, 0.0) > 0)
    ]
    longest = max((max(of_class) for of_class in lengths), default=0)
    context = server.settings.context_tokens
    if longest + config.max_tokens > context:
        raise UserError(
            f"workload {config.name!r}: prompts of up to {longest} tokens and max_tokens of "
            f"{config.max_tokens} exceed the context of {context}; lower max_tokens or use shorter "
            "prompts"
        )
    prompt_tokens = float(np.mean([np.mean(of_class) for of_class in lengths or [[0]]]))
    # A request may emit between half of max_tokens and all of it.
    capacity_rps = server.capacity_rps(prompt_tokens, 0.75 * config.max_tokens)

    def draw(generator: np.random.Generator) -> list[Request]:
        return build_requests(
            config,
            prompts,
            lambda text: list(encoded(text)),
            capacity_rps,
            classes,
            stop_ids,
            generator,
        )

    return draw
