"""`DraftGym/ServeLive-v0`: the serving environment on neural models that run on this machine.

Puts a live server, a workload and prompts together; the environment itself is `envs.serve`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.errors import UserError
from engine.request import Request
from engine.workload import PromptSet, WorkloadConfig, build_requests, workload
from envs.reward import GoodputReward
from envs.serve import ServeEnv
from policies.actions import ActionTable

if TYPE_CHECKING:
    from engine.loop import Engine
    from engine.serving import LiveServer

MakeRequests = Callable[[np.random.Generator], list[Request]]

LOSSY_MARGINS = (1.0, 0.8, 0.6)
"""Acceptance margins of `lossless=False`; 0.6 is AdaptiveSpec's as we set it."""


def make_live(
    *,
    server: LiveServer | Callable[[], LiveServer] | None = None,
    model: str = "smollm2-135m-instruct",
    draft_head: str | Path | None = None,
    dtype: str = "auto",
    slots: int = 16,
    threads: int = 0,
    workload: str | WorkloadConfig = "shifting",
    load: float | None = None,
    prompts: str | Path | None = None,
    requests: MakeRequests | None = None,
    classes: ClassTable = DEFAULT_CLASSES,
    actions: ActionTable | None = None,
    lossless: bool = True,
    reward: GoodputReward | None = None,
    decide_every: int = 1,
    max_decisions: int | None = None,
    seed: int | None = None,
) -> ServeEnv:
    """The environment that `gymnasium.make("DraftGym/ServeLive-v0", …)` returns.

    `server` (or a function that returns one, which Gymnasium never copies) is used as it is;
    otherwise `model`, `draft_head` (None: the model's own), `dtype`, `slots` and `threads` say what
    to load, at the first reset.
    `workload` is a preset, a TOML file or a config, `load` replaces its load; `requests` draws a
    trace from a generator in their place. Without `actions` the default table is taken, with
    lossless margins unless `lossless` is False: the reward knows no quality of text, so a margin
    is never for the taking by default. Raises UserError.
    """
    if actions is None:
        margins = (1.0,) if lossless else LOSSY_MARGINS
        actions = ActionTable(classes.names, margins=margins)
    elif lossless and not actions.lossless:
        raise UserError(
            f"the action table has the margins {actions.margins}, which change the text; "
            "pass lossless=False to allow it"
        )

    @cache
    def served() -> LiveServer:
        if server is None:
            from engine.serving import LiveConfig, LiveServer

            head = None if draft_head is None else Path(draft_head)
            return LiveServer.load(LiveConfig(model, head, dtype, slots, threads=threads))
        return server() if callable(server) else server

    draw = requests or _workload_requests(served, _config(workload, load), prompts, classes)

    def make_engine(generator: np.random.Generator) -> Engine:
        return served().engine(draw(generator), classes)

    return ServeEnv(make_engine, actions, reward, decide_every, max_decisions, seed)


def _config(chosen: str | WorkloadConfig, load: float | None) -> WorkloadConfig:
    if isinstance(chosen, str):
        return workload(chosen, load=load)
    if load is not None:
        raise UserError("load was given beside a workload config; set it in the config")
    return chosen


def _workload_requests(
    served: Callable[[], LiveServer],
    config: WorkloadConfig,
    prompts: str | Path | None,
    classes: ClassTable,
) -> MakeRequests:
    """Draws a trace from the workload; every prompt is tokenized once."""
    prompt_set = PromptSet.load(prompts)

    @cache
    def encode(text: str) -> tuple[int, ...]:
        tokenizer = served().tokenizer
        if tokenizer is None:
            raise UserError(
                f"the server {served().name} has no tokenizer; pass requests, a function that "
                "draws prompts of token ids"
            )
        return tuple(tokenizer.chat_prompt(text))

    def draw(generator: np.random.Generator) -> list[Request]:
        ready = served()
        # A request may emit between half of max_tokens and all of it.
        capacity_rps = ready.capacity_rps(0.75 * config.max_tokens)
        stops = frozenset() if ready.tokenizer is None else frozenset({ready.tokenizer.eos_id})
        return build_requests(
            config,
            prompt_set,
            lambda text: list(encode(text)),
            capacity_rps,
            classes,
            stops,
            generator,
        )

    return draw
