"""Environments of their own, stepped one after the other: the face that a fleet has, for prices.

A fleet serves held plans alone, so policies that set prices are trained on single replay engines.
Resets, infos and figures are those of `train.watched_fleet`: the last observation of an episode
stands in `terminal_observation`, and rates are per second of one engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from engine.protocol import Ints
from engine.request import RequestRecord
from engine.snapshot_origin import Snapshot, check_origin
from engine.snapshot_values import Carrier
from envs.serve import ServeEnv
from policies.action_codec import ActionCodec, TierCodec
from policies.features import Observation
from train import summed_window
from train.action_space import space_of
from train.ended_requests import ended_by_class
from train.sb3_vec_env import SharedEpisodes
from train.summed_window import SummedWindow
from train.window import SPAN_S

KIND = "WatchedSingles"
KEPT = (*summed_window.KEPT, "_seen")
CARRIER = Carrier(left_out={}, records=(), rebuild={})
"""What a snapshot carries beside the environments."""


class WatchedSingles(SummedWindow, SharedEpisodes, DummyVecEnv):
    """Steps environments on replay in turn, and keeps what their last `span_s` seconds brought."""

    envs: list[ServeEnv]  # type: ignore[assignment]
    actions: Ints

    def __init__(
        self, envs: Sequence[ServeEnv], span_s: float = SPAN_S, codec: ActionCodec | None = None
    ) -> None:
        """`envs` are alike. Actions are the codec's; without one they are tier indices [D]."""
        super().__init__([lambda env=env: env for env in envs])  # type: ignore[misc]
        self.table = self.envs[0].actions
        self.codec = codec or TierCodec(self.table)
        self.action_space = space_of(self.codec)
        self.begin_window(span_s)
        self._seen = [0] * len(self.envs)  # records of each engine that were told of

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
        self.note(infos, self.actions, ended_by_class(ended, len(self.table.class_names)))
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
