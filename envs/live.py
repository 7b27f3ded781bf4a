"""`DraftGym/ServeLive-v0`: the serving environment on neural models that run on this machine.

Puts a live server, a workload and prompts together; the environment itself is `envs.serve`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.drawing import Draw, Drawing
from engine.errors import UserError
from engine.workload import PromptSet, WorkloadConfig, workload
from envs.observing import Size, observer
from envs.reward import GoodputReward
from envs.serve import ServeEnv
from policies.actions import Actions, ActionTable

if TYPE_CHECKING:
    from engine.loop import Engine
    from engine.serving import LiveServer

Table = TypeVar("Table", bound=Actions)

LOSSY_MARGINS = (1.0, 0.8, 0.6)
"""Acceptance margins of `lossless=False`; 0.6 is AdaptiveSpec's as we set it."""


def make_live(
    *,
    server: LiveServer | Callable[[], LiveServer] | None = None,
    model: str = "smollm2-135m-instruct",
    draft_head: str | Path | None = None,
    drafter: str = "eagle3",
    draft_model: str | None = None,
    device: str = "auto",
    attention: str = "auto",
    dtype: str = "auto",
    slots: int = 16,
    threads: int = 0,
    workload: str | WorkloadConfig = "shifting",
    load: float | None = None,
    prompts: str | Path | None = None,
    requests: Draw | None = None,
    classes: ClassTable = DEFAULT_CLASSES,
    actions: Actions | None = None,
    lossless: bool = True,
    observation: Size = "aggregate",
    reward: GoodputReward | None = None,
    decide_every: int = 1,
    max_decisions: int | None = None,
    seed: int | None = None,
) -> ServeEnv:
    """The environment that `gymnasium.make("DraftGym/ServeLive-v0", …)` returns.

    `server` (or a function that returns one, which Gymnasium never copies) is used as it is;
    otherwise `model`, `draft_head` (None: the model's own), `drafter` (eagle3, model or
    prompt-lookup), `draft_model`, `dtype`, `slots` and `threads` say what to load, and `device`
    (auto, cpu or cuda) and `attention` where and how it computes, at the first reset.
    `workload` is a preset, a TOML file or a config, `load` replaces its load (refused where regimes
    or shifts set it); `requests` draws a trace from a generator in their place. Without `actions`
    the default table is taken, with lossless margins unless `lossless` is False: the reward knows
    no quality of text, so a margin is never for the taking by default. `observation` is one of
    `envs.observing`; for those but the aggregate the server is loaded at once. Raises UserError.
    """
    table = chosen_actions(classes, actions, lossless)

    @cache
    def served() -> LiveServer:
        if server is None:
            from engine.serving import LiveConfig, LiveServer

            head = None if draft_head is None else Path(draft_head)
            return LiveServer.load(
                LiveConfig(
                    model, head, dtype, slots,
                    threads=threads, drafter=drafter, draft_model=draft_model,
                    device=device, attention=attention,
                )
            )  # fmt: skip
        return server() if callable(server) else server

    if requests is None:
        config, texts = chosen_workload(workload, load), PromptSet.load(prompts)

    @cache
    def draw() -> Draw:
        if requests is not None:
            return requests
        return Drawing(served(), config, texts, classes)

    def make_engine(generator: np.random.Generator) -> Engine:
        return served().engine(draw()(generator), classes)

    sees = observer(observation, table, lambda: served().settings.limits)
    return ServeEnv(make_engine, table, reward, decide_every, max_decisions, seed, observer=sees)


def chosen_actions(
    classes: ClassTable, actions: Table | None, lossless: bool
) -> Table | ActionTable:
    """The given action table or the default one; raises UserError for margins not asked for."""
    if actions is None:
        return ActionTable(classes.names, margins=(1.0,) if lossless else LOSSY_MARGINS)
    if lossless and isinstance(actions, ActionTable) and not actions.lossless:
        raise UserError(
            f"the action table has the margins {actions.margins}, which change the text; "
            "pass lossless=False to allow it"
        )
    return actions


def chosen_workload(chosen: str | WorkloadConfig, load: float | None) -> WorkloadConfig:
    """A preset, a TOML file or a config, with another load where one is given; UserError."""
    if isinstance(chosen, str):
        return workload(chosen, load=load)
    if load is not None:
        raise UserError("load was given beside a workload config; set it in the config")
    return chosen
