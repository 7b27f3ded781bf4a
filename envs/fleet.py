"""Many serving environments on one fleet of replicas: what both vector faces have in common.

Each environment is `envs.serve.ServeEnv` on replay, number for number; here all of them are stepped
in one call. When an environment is reset, and in which form infos are handed out, is for the faces
to say: `envs.vector` (Gymnasium) and `train.sb3_vec_env` (Stable-Baselines3).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from numpy.typing import NDArray

from engine.errors import UserError
from engine.protocol import Bools, Floats, Ints
from engine.replay.fleet.fleet import Fleet
from engine.replay.fleet.state import ENDED, STAGES, TALLY
from engine.snapshot_origin import Snapshot
from envs.episodes import ReplayEpisodes
from envs.fleet_kernels import Course, Tiers, Told, pay_of, step_all
from envs.fleet_summary import fleet_summary
from envs.observing import Size, request_space, require_size, vector_space
from envs.reward import PARTS, GoodputReward
from envs.same_types import SameTypes
from policies.actions import ActionTable
from policies.features import Observation, feature_table, require_finite
from policies.fleet_features import new_scratch, scales_of
from policies.fleet_request_features import show_requests
from policies.fleet_shifts import forget, new_shifts
from policies.request_features import request_table, require_finite_rows

REWARD_PARTS = tuple(f"reward/{part}" for part in PARTS)


class Step(NamedTuple):
    """What a step brought the environments that acted; the others' entries are 0. Fresh arrays."""

    reward: Floats  # [R]
    truncated: Bools  # [R]
    info: dict[str, NDArray[Any]]  # [R] each
    ended: NDArray[Any]  # [R, C] of `engine.replay.fleet.state.ENDED`
    observation: Any  # of everybody, on which the next actions are based, as `ServeFleet.observe`


class ServeFleet:
    """R environments; a step of one is `decide_every` iterations under its action."""

    def __init__(
        self,
        episodes: ReplayEpisodes,
        replicas: int,
        actions: ActionTable,
        reward: GoodputReward | None = None,
        decide_every: int = 1,
        max_decisions: int | None = None,
        observation: Size = "aggregate",
    ) -> None:
        """Loads what episodes need. Raises UserError, also for margins, which no fleet serves."""
        for name, value in (("decide_every", decide_every), ("max_decisions", max_decisions)):
            if value is not None and (type(value) is not int or value < 1):
                raise UserError(f"{name} is {value!r}; expected a whole number of at least 1")
        require_size(observation)
        if observation == "learning-to-draft":
            raise UserError(
                "a fleet of replicas grows no trees, which learning-to-draft observes; take single "
                "environments (`gymnasium.make`)"
            )
        if not isinstance(actions, ActionTable):
            raise UserError(
                f"the actions are {actions.kind}, and a fleet of replicas serves plans alone; take "
                "an ActionTable, or single environments (`gymnasium.make`)"
            )
        if not actions.lossless:
            raise UserError(
                f"the action table has the margins {actions.margins}, and a fleet of replicas "
                "serves without a margin; take the default table, or single environments "
                "(`gymnasium.make`)"
            )
        if actions.class_names != episodes.classes.names:
            raise UserError(
                f"the engine serves the classes {', '.join(episodes.classes.names)}, the action "
                f"table is for {', '.join(actions.class_names)}; use one class table for both"
            )
        self.episodes, self.actions, self.reward = episodes, actions, reward or GoodputReward()
        self.decide_every, self.max_decisions = decide_every, max_decisions
        self.fleet = Fleet(episodes.server, replicas, episodes.classes)
        self.replicas = replicas
        self._scales = scales_of(self.fleet)
        self.observation, self.features = observation, feature_table(actions.class_names)
        self.request_features = request_table(actions.class_names)
        self.observation_space: spaces.Space[Any] = vector_space(self.features)
        if observation == "per-request":
            self.observation_space = request_space(
                self.features, self.request_features, self.fleet.limits.slots
            )
        self.action_space = spaces.MultiDiscrete(actions.nvec)
        shapes = actions.depths, actions.widths, actions.nodes
        depths, widths, nodes = (np.array(tiers) for tiers in shapes)
        self._tiers = Tiers(depths, widths, nodes, np.array(actions.running, np.float64))
        self.plan = self.fleet.plan(0, 1, 1)
        """By class, in force now; a reset switches speculation off until the first decision, and
        frees every slot."""
        self.shifts = new_shifts(replicas, len(actions.class_names), self.fleet.limits.slots)
        """What observations remember of the episodes so far."""
        self._pay = pay_of(self.reward, self.fleet.unloaded_tpot_s, self.fleet.limits.slots)
        self._step_all, self._show_requests = SameTypes(step_all), SameTypes(show_requests)
        self._scratch = new_scratch(len(actions.class_names), len(self.features))
        self._generators: list[np.random.Generator | None] = [None] * replicas
        self._decisions = np.zeros(replicas, np.int64)
        self._switched = np.zeros(replicas, np.int64)
        self.live = np.zeros(replicas, np.bool_)
        """[R] which environments are within an episode."""

    def reset(self, replica: int, seed: int | None = None) -> None:
        """Begin the environment's next episode; without a seed its generator goes on."""
        generator = self._generators[replica]
        if seed is not None or generator is None:
            generator, _ = seeding.np_random(seed)
            self._generators[replica] = generator
        self.fleet.begin(replica, self.episodes.draw(generator))
        off = self.actions.off()
        for part, value in zip(self.plan[:3], off[:3], strict=True):
            part[replica] = value
        self.plan.running[replica] = 1.0
        forget(self.shifts, replica)
        self._decisions[replica] = 0
        self.live[replica] = True

    def observe(self) -> Any:
        """[R, F], or by name with `requests` [R, S, K] and `mask` [R, S] beside it; fresh arrays.

        Raises UserError for what is not a number.
        """
        nobody = np.zeros(self.replicas, np.bool_)
        nothing = np.zeros((self.replicas, len(self.actions.nvec)), np.int64)
        return self._observation(self._serve(nothing, nobody).observation)

    def step(self, actions: Ints, acting: Bools | None = None) -> Step:
        """Serve the environments that act [R], None for all, under actions [R, D]."""
        told = self._serve(self._whole(actions), self._chosen(acting))
        info = self._info(told.tally, told.elapsed_s, told.waiting)
        info |= zip(REWARD_PARTS, told.parts, strict=True)
        seen = self._observation(told.observation)
        return Step(told.reward, told.truncated, info, told.ended, seen)

    def serving(self, replica: int) -> dict[str, float]:
        """The figures of an episode that is over."""
        return fleet_summary(self.fleet.state, replica, self.actions.class_names)

    def snapshot(self) -> Snapshot:
        """Every episode as it stands and who draws the next ones (`envs.snapshot`)."""
        from envs.snapshot import take_many

        return take_many(self)

    def restore(self, snapshot: Snapshot) -> Observation:
        """Go on from there; what was observed last. Raises UserError where it does not fit."""
        from envs.snapshot import put_back_many

        return put_back_many(self, snapshot)

    def nothing(self) -> dict[str, NDArray[Any]]:
        """The info of environments that were just reset."""
        zeros = np.zeros((2, self.replicas))
        return self._info(np.zeros_like(self.fleet.state.tally), *zeros)

    @property
    def clock_s(self) -> Floats:
        """[R] engine clocks, a fresh array."""
        return np.array(self.fleet.state.replicas["clock_s"])

    def _serve(self, actions: Ints, acting: Bools) -> Told:
        """Serve the environments that act, and observe all. Raises UserError."""
        state, count = self.fleet.state, self.replicas
        told = Told(
            elapsed_s=np.empty(count),
            waiting=np.empty(count),
            tally=np.empty(count, TALLY),
            ended=np.empty(state.ended.shape, ENDED),
            parts=np.empty((len(PARTS), count)),
            reward=np.empty(count),
            truncated=np.empty(count, np.bool_),
            observation=np.empty((count, len(self.features)), np.float32),
        )
        course = Course(self.live, self._decisions, self.max_decisions or 0, self._switched)
        refused, is_finite = self._step_all(
            (state, self.plan, self.shifts, self.live, self._decisions),
            actions,
            acting,
            self.decide_every,
            self._tiers,
            self._pay,
            self._scales,
            self._scratch,
            self.plan,
            self.shifts,
            course,
            state,
            told,
        )
        if refused >= 0:
            self._refuse(actions[refused], acting)
        if not is_finite:
            self._name_what_is_not_finite(told)
        return told

    def _observation(self, of_engines: Observation) -> Any:
        """As `observe`, from the engines' features [R, F]. Raises UserError."""
        if self.observation == "aggregate":
            return of_engines
        state, features = self.fleet.state, self.request_features
        shape = self.replicas, self.fleet.limits.slots
        rows = np.empty((*shape, len(features)), np.float32)
        mask = np.empty(shape, np.float32)
        token_s, exact = self.fleet.unloaded_tpot_s, np.empty(len(features))
        if not self._show_requests((state,), state, token_s, exact, rows, mask):
            for of_replica in rows:
                require_finite_rows(of_replica, features)
        return {"engine": of_engines, "requests": rows, "mask": mask}

    def _whole(self, actions: Ints) -> Ints:
        """The actions [R, D] as the kernel takes them. Raises UserError where none are."""
        given = np.asarray(actions)
        shape = self.replicas, len(self.actions.nvec)
        if given.shape != shape or given.dtype.kind not in "iu":
            raise UserError(
                f"actions of shape {given.shape} and type {given.dtype}; expected whole numbers "
                f"of shape {shape}, a row for each environment"
            )
        return np.ascontiguousarray(given, np.int64)  # of one type: kernels compile for each

    def _chosen(self, acting: Bools | None) -> Bools:
        """Who acts [R], as the kernel takes it. Raises UserError for another shape."""
        if acting is None:
            return np.ones(self.replicas, np.bool_)
        if np.shape(acting) != (self.replicas,):
            raise UserError(
                f"acting has the shape {np.shape(acting)}; expected ({self.replicas},), one flag "
                "for each environment"
            )
        return np.ascontiguousarray(acting, np.bool_)

    def _refuse(self, action: Ints, acting: Bools) -> None:
        """Raise the UserError that says why the environments cannot act so."""
        if (acting > self.live).any():
            raise UserError("step() was called outside an episode; call reset() first")
        self.actions.decode(action)

    def _name_what_is_not_finite(self, told: Told) -> None:
        """Raise the UserError that names it."""
        for name, part in zip(PARTS, told.parts, strict=True):
            wrong = part[~np.isfinite(part)]
            if len(wrong):
                raise UserError(
                    f"reward part {name} is {wrong[0]}; expected a finite number, so an engine's "
                    "clock or token counts are wrong"
                )
        for row in told.observation:
            require_finite(row, self.features)

    def _info(
        self, tally: NDArray[Any], elapsed_s: Floats, waiting: Floats
    ) -> dict[str, NDArray[Any]]:
        return {
            "elapsed_s": elapsed_s,
            "busy_s": tally["busy_s"],
            "clock_s": self.clock_s,
            "iterations": tally["iterations"],
            "emitted_tokens": tally["emitted"],
            "valid_tokens": tally["valid"],
            "finished": tally["finished"],
            "attained": tally["attained"],
            "missed": tally["missed"],
            "cost": tally["missed"].astype(float),
            "energy_joules": tally["energy_joules"],
            "waiting": waiting,
            **{f"time/{stage}": tally[f"{stage}_s"] for stage in STAGES},
        }
