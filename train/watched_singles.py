"""Environments of their own, stepped one after the other: the face that a fleet has, for prices.

A fleet serves held plans alone, so policies that set prices are trained on single replay engines.
Resets, infos and figures are those of `train.watched_fleet`: the last observation of an episode
stands in `terminal_observation`, and rates are per second of one engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from engine.protocol import Floats, Ints
from engine.request import RequestRecord
from engine.snapshot_origin import Snapshot, check_origin
from engine.snapshot_values import Carrier
from envs.serve import ServeEnv
from policies.action_codec import ActionCodec, TierCodec
from policies.features import Observation
from train.action_space import space_of
from train.sb3_vec_env import SharedEpisodes
from train.watched_fleet import ENDED, figures_of
from train.window import ACTION, SPAN_S

KIND = "WatchedSingles"
KEPT = ("_sums", "elapsed_s", "_names", "_seen")
CARRIER = Carrier(left_out={}, records=(), rebuild={})
"""What a snapshot carries beside the environments."""


class WatchedSingles(SharedEpisodes, DummyVecEnv):
    """Steps environments on replay in turn, and keeps what their last `span_s` seconds brought."""

    envs: list[ServeEnv]  # type: ignore[assignment]
    actions: Ints

    def __init__(
        self, envs: Sequence[ServeEnv], span_s: float = SPAN_S, codec: ActionCodec | None = None
    ) -> None:
        """`envs` are alike. Actions are the codec's; without one they are tier indices [D]."""
        super().__init__([lambda env=env: env for env in envs])  # type: ignore[misc]
        self.span_s, self.table = span_s, self.envs[0].actions
        self.codec = codec or TierCodec(self.table)
        self.action_space = space_of(self.codec)
        self.elapsed_s = 0.0  # engine time of all that the window holds
        self._sums: deque[Floats] = deque()  # of each step over the environments, by `_names`
        self._names: list[str] = []
        self._seen = [0] * len(self.envs)  # records of each engine that were told of
        names = self.table.class_names
        self._columns = ["steps", *(f"{kind}/{name}" for kind in ENDED for name in names)]

    def reset(self) -> VecEnvObs:
        """Begin an episode everywhere, with the seeds that `seed` left behind."""
        self._seen = [0] * self.num_envs
        return super().reset()

    def step_async(self, actions: np.ndarray) -> None:
        """Take the actions [R, …]."""
        self.actions = self.codec.decode(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Step all, and begin the next episode where one is over; every array is fresh."""
        observations: list[Observation] = []
        infos: list[dict[str, Any]] = []
        ended: list[RequestRecord] = []
        rewards, dones = np.empty(self.num_envs), np.empty(self.num_envs, np.bool_)
        for index, (env, action) in enumerate(zip(self.envs, self.actions, strict=True)):
            observation, reward, _, truncated, info = env.step(action)
            rewards[index], dones[index] = float(reward), truncated
            observations.append(observation)
            infos.append(info)
            ended += self._newly_ended(index)
        self._note(infos, ended)
        for index, info in enumerate(infos):
            info["TimeLimit.truncated"] = bool(dones[index])
            if dones[index]:
                info["terminal_observation"] = observations[index]
                observations[index], self.reset_infos[index] = self.envs[index].reset()
                self._seen[index] = 0
        return np.stack(observations), rewards, dones, infos

    def _newly_ended(self, index: int) -> list[RequestRecord]:
        """Requests of the environment that ended within its step."""
        engine = self.envs[index].engine
        assert engine is not None
        records = engine.records()
        new = records[self._seen[index] :]
        self._seen[index] = len(records)
        return new

    def _note(self, infos: Sequence[dict[str, Any]], ended: Sequence[RequestRecord]) -> None:
        """Add a step of all environments to the window."""
        chosen = [self.table.figures(action) for action in self.actions]
        by_class = np.zeros((len(ENDED), len(self.table.class_names)))
        for record in ended:
            if record.has_objective:
                by_class[:, record.slo_class] += 1, record.attained, record.good_tokens
        numbers = [
            name for name, value in infos[0].items() if isinstance(value, int | float | np.number)
        ]
        self._names = [*numbers, *self._columns, *(ACTION + name for name in chosen[0])]
        sums = [sum(info[name] for info in infos) for name in numbers]
        sums += [
            self.num_envs,
            *by_class.ravel(),
            *(sum(of[name] for of in chosen) for name in chosen[0]),
        ]
        self._sums.append(np.array(sums, np.float64))
        at = numbers.index("elapsed_s")
        self.elapsed_s += sums[at]
        while self.elapsed_s - self._sums[0][at] >= self.span_s * self.num_envs:
            self.elapsed_s -= self._sums.popleft()[at]

    def figures(self) -> dict[str, float]:
        """Tags and values for TensorBoard; a figure that has nothing to count is left out."""
        if not self._sums or self.elapsed_s <= 0:
            return {}
        total = dict(zip(self._names, np.sum(self._sums, axis=0).tolist(), strict=True))
        return figures_of(total, self.elapsed_s, self.table.class_names)

    def snapshot(self) -> Snapshot:
        """Every episode as it stands, who draws the next, and the window."""
        taken = [env.snapshot()._asdict() for env in self.envs]
        kept = {name: getattr(self, name) for name in KEPT}
        return Snapshot(KIND, self._count, {"envs": taken, "window": CARRIER.pack(kept, KIND)})

    def restore(self, snapshot: Snapshot) -> Observation | None:
        """Go on from there; what was observed last [R, F], None where no episode had begun.

        Raises UserError where anything else was served.
        """
        check_origin(snapshot, KIND, self._count)
        observed = [
            env.restore(Snapshot(**of))
            for env, of in zip(self.envs, snapshot.state["envs"], strict=True)
        ]
        for name, value in CARRIER.unpack(snapshot.state["window"]).items():
            setattr(self, name, value)
        begun = [observation for observation in observed if observation is not None]
        return np.stack(begun) if begun else None

    @property
    def _count(self) -> dict[str, str]:
        return {"number of environments": str(self.num_envs)}
