"""Serving as a Gymnasium environment: one engine, one episode a trace, decisions in between.

The engine does the work and keeps the time; features, actions and reward live in their own files.
Whatever a trainer does between two steps is not on the engine's clock and charged to no request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

from engine.errors import UserError
from engine.protocol import Ints, View
from envs.observing import Aggregate, Observer
from envs.reward import GoodputReward, Tally, serving_summary, standing_of
from policies.actions import Actions
from policies.features import Observation

if TYPE_CHECKING:
    from engine.loop import Engine
    from engine.request import Request
    from engine.snapshot_origin import Snapshot

MakeEngine = Callable[[np.random.Generator], "Engine"]
EngineFor = Callable[[Sequence["Request"]], "Engine"]


class ServeEnv(gymnasium.Env[Observation, Ints]):
    """Decide how to speculate while an engine serves a trace, by a table of actions.

    `policies.actions.ActionTable` (depth, width, node cap and margin by SLO class) or
    `policies.price_actions.PriceActions` (factors that steer slack-priced, which selects the nodes
    in every iteration). A step is `decide_every` iterations under one action. Serving never
    terminates: the end of the trace, or `max_decisions`, is `truncated`. `info` holds `elapsed_s`
    (engine clock between two decisions, for discounting by time), `busy_s`, `iterations`,
    `emitted_tokens`, `valid_tokens`, `finished`, `attained`, `missed`, `cost` (violations: missed
    requests), `energy_joules`, `waiting` (as `envs.reward.Standing`), `clock_s`, seconds by stage
    as `time/…`, the reward's parts as `reward/…`, and with the last step `serving`, the episode's
    figures by name.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own declaration)

    def __init__(
        self,
        make_engine: MakeEngine,
        actions: Actions,
        reward: GoodputReward | None = None,
        decide_every: int = 1,
        max_decisions: int | None = None,
        seed: int | None = None,
        engine_for: EngineFor | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`make_engine` gives a fresh episode drawn from the generator that it is handed.

        `max_decisions` cuts an episode, None lets it run to the trace's end; `seed` stands in for
        the first reset's when that is given none. `engine_for` gives an episode of requests that
        were drawn before, which restoring a snapshot needs; `observer` sees what the environment
        shows, None for the aggregate of `envs.observing`.
        """
        for name, value in (("decide_every", decide_every), ("max_decisions", max_decisions)):
            if value is not None and (type(value) is not int or value < 1):
                raise UserError(f"{name} is {value!r}; expected a whole number of at least 1")
        self.actions = actions
        self._observer = observer or Aggregate(actions.class_names)
        self.observation, self.features = self._observer.size, self._observer.features
        self.reward = reward or GoodputReward()
        self.decide_every, self.max_decisions = decide_every, max_decisions
        self.observation_space = self._observer.space
        self.action_space = spaces.MultiDiscrete(actions.nvec)
        self.engine: Engine | None = None
        self._make_engine, self._engine_for = make_engine, engine_for
        self._first_seed = seed
        self._actor = actions.actor()
        self._view: View | None = None
        self._decisions = 0
        self._ended = True
        self._records_seen = 0
        self._observation_s = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin the next episode; the one before may have been cut midway. No options."""
        if options:
            raise UserError(f"reset got the options {sorted(options)}; expected none")
        if seed is None:
            seed = self._first_seed
        self._first_seed = None
        super().reset(seed=seed)
        self.engine = engine = self._make_engine(self.np_random)
        if engine.class_names != self.actions.class_names:
            raise UserError(
                f"the engine serves the classes {', '.join(engine.class_names)}, the action table "
                f"is for {', '.join(self.actions.class_names)}; use one class table for both"
            )
        self._actor.reset(engine.limits)
        self._observer.reset()
        self._decisions = self._records_seen = 0
        self._ended = False
        self._view = engine.next_decision()
        return self._observation(engine, self._view_now(engine)), self._info(engine, Tally(), 0.0)

    def step(self, action: Ints) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Serve `decide_every` iterations, fewer at the trace's end, under `action`."""
        engine = self.engine
        if engine is None or self._ended:
            raise UserError("step() was called outside an episode; call reset() first")
        switched = self._actor.decide(action)
        tally, began_s = Tally(), engine.clock_s
        # Where an exported controller spends its time: the features. Charged once a decision.
        self._actor.decision_s = self._observation_s
        while self._view is not None and tally.iterations < self.decide_every:
            tally.add(engine.run_iteration(self._view, self._actor))
            self._actor.decision_s = 0.0
            self._view = engine.next_decision()
        self._decisions += 1
        records = engine.records()
        tally.ended = records[self._records_seen :]
        self._records_seen = len(records)

        view = self._view_now(engine)
        standing = standing_of(view, self.reward.minds_standing)
        parts = self.reward.parts(
            tally, engine.unloaded_tpot_s, engine.limits.slots, standing, switched
        )
        for name, part in parts.items():
            if not np.isfinite(part):
                raise UserError(
                    f"reward part {name} is {part}; expected a finite number, so the engine's "
                    f"clock ({engine.clock_s} s) or token counts are wrong"
                )
        info = self._info(engine, tally, engine.clock_s - began_s, standing.waiting)
        info.update({f"reward/{name}": float(part) for name, part in parts.items()})
        drained = self._view is None
        truncated = drained or self._decisions == self.max_decisions
        if truncated:
            self._ended = True
            info["serving"] = serving_summary(
                engine.close_records(), self.actions.class_names, drained
            )
        return self._observation(engine, view), float(sum(parts.values())), False, truncated, info

    def snapshot(self) -> Snapshot:
        """The episode as it stands and who draws the next (`envs.snapshot`); UserError on live."""
        from envs.snapshot import take_single

        return take_single(self)

    def restore(self, snapshot: Snapshot) -> Observation | None:
        """Go on from there; what was observed last. Raises UserError where it does not fit."""
        from envs.snapshot import put_back_single

        return put_back_single(self, snapshot)

    def close(self) -> None:
        """Let go of the engine; may be called twice."""
        self.engine = self._view = None
        self._ended = True

    def _view_now(self, engine: Engine) -> View:
        """What the coming decision is based on.

        After the last iteration no decision is due, and the view is that of the engine as it
        stands: what a trainer bootstraps from.
        """
        if self._view is not None:
            return self._view
        from engine.viewing import build_view

        return build_view(engine)

    def _observation(self, engine: Engine, view: View) -> Observation:
        """The features of a view, always a fresh array."""
        stopwatch = engine.stopwatch or perf_counter  # a modelled one stands still
        begun = stopwatch()
        observation: Observation = self._observer.observe(engine, view, self._actor.previous)
        self._observation_s = stopwatch() - begun
        return observation

    def _info(
        self, engine: Engine, tally: Tally, elapsed_s: float, waiting: float = 0.0
    ) -> dict[str, Any]:
        return {
            "elapsed_s": float(elapsed_s),
            "busy_s": tally.busy_s,
            "clock_s": float(engine.clock_s),
            "iterations": tally.iterations,
            "emitted_tokens": tally.emitted_tokens,
            "valid_tokens": tally.valid_tokens,
            "finished": len(tally.ended),
            "attained": sum(record.attained for record in tally.ended),
            "missed": tally.missed,
            "cost": float(tally.missed),
            "energy_joules": float(tally.energy_joules),
            "waiting": waiting,
            **{f"time/{stage}": seconds for stage, seconds in tally.stages_s.items()},
        }
