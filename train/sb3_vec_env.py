"""The batched serving environment as Stable-Baselines3 wants it: reset within the step that ends.

What it serves is `envs.fleet`'s; what an algorithm's actions stand for, `policies.action_codec`'s.
Infos are a dict for each environment, as of a `DummyVecEnv` of single ones; the last observation of
an episode stands in `terminal_observation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvStepReturn

from engine.protocol import Bools, Ints
from engine.snapshot_origin import Snapshot, check_origin
from engine.snapshot_values import LeftOut
from envs.fleet import ServeFleet, Step
from envs.observing import of_engine, row_of
from envs.snapshot import MANY, made_on_of
from policies.action_codec import ActionCodec, TierCodec
from policies.action_mask import ActionMask
from policies.features import Observation
from train.action_space import space_of

MASKS = "action_masks"
"""The method by which sb3-contrib asks for masks."""


class SharedEpisodes(VecEnv):
    """How engines that are stepped at once are seeded, whoever steps them."""

    shared_by: int = 1
    """So many neighbours are seeded alike, and so are given the same episodes."""

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seeds of the next reset: `seed`, `seed` + 1, …, of neighbours that share the first's."""
        seeds = super().seed(seed)
        self._seeds = [seeds[i - i % self.shared_by] for i in range(self.num_envs)]
        return self._seeds


class NoObjects(SharedEpisodes):
    """Engines that are no objects here which could be called or wrapped: they only tell masks."""

    def action_masks(self) -> Bools:
        """Tiers that may be chosen now, [R, Σ nvec]."""
        raise NotImplementedError(f"{type(self).__name__} defines no action_masks()")

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Masks; nothing else can be called."""
        if method_name == MASKS:
            masks = self.action_masks()
            return [masks[index] for index in self._get_indices(indices)]
        raise NotImplementedError(
            f"{method_name}: the engines of a {type(self).__name__} cannot be called"
        )

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Never."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """There is nothing to see."""
        return [None] * self.num_envs


class FleetVecEnv(NoObjects):
    """All environments of one `ServeFleet`."""

    actions: Ints

    def __init__(self, serving: ServeFleet, codec: ActionCodec | None = None) -> None:
        """Actions are the codec's; without one they are tier indices [D]."""
        self.serving = serving
        self.codec = codec or TierCodec(serving.actions)
        self.mask = ActionMask(serving.actions, serving.features, serving.fleet.limits)
        self.latest: Step | None = None
        """What the latest step brought, before anybody was reset."""
        self.acted: tuple[NDArray[Any], ...] = ()
        """Depth, width and nodes by class, [R, C] each, under which it was served, and where it is
        chosen the share of the slots that might be held [R, 1]."""
        self._observed: Observation | None = None
        super().__init__(serving.replicas, serving.observation_space, space_of(self.codec))

    def reset(self) -> Observation:
        """Begin an episode everywhere, with the seeds that `seed` left behind."""
        for replica, seed in enumerate(self._seeds):
            self.serving.reset(replica, seed)
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = _rows(self.serving.nothing())
        self._observed = observed = self.serving.observe()
        return observed

    def step_async(self, actions: np.ndarray) -> None:
        """Take the actions [R, …]."""
        self.actions = self.codec.decode(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Step all, and begin the next episode where one is over; every array is fresh."""
        self.latest = step = self.serving.step(self.actions)
        plan = self.serving.plan
        of_engine = [plan.running[:, None]] if self.serving.actions.sizes_batch else []
        self.acted = tuple(part.copy() for part in (*plan[:3], *of_engine))
        observation = step.observation
        infos = _rows(step.info)
        over = np.flatnonzero(step.truncated).tolist()
        for info in infos:
            info["TimeLimit.truncated"] = False
        for replica in over:
            infos[replica]["TimeLimit.truncated"] = True
            infos[replica]["serving"] = self.serving.serving(replica)
            infos[replica]["terminal_observation"] = row_of(observation, replica)
            self.serving.reset(replica)
        if over:
            observation = self.serving.observe()
            fresh = _rows(self.serving.nothing())
            for replica in over:
                self.reset_infos[replica] = fresh[replica]
        self._observed = observation
        return observation, step.reward, step.truncated, infos

    def action_masks(self) -> Bools:
        """[R, Σ nvec] the tiers of use to each environment as it stands."""
        assert self._observed is not None, "reset comes first"
        return self.mask.legal(of_engine(self._observed))

    def snapshot(self) -> Snapshot:
        """Every episode as it stands, what the latest step brought, and who draws the next."""
        kind = type(self).__name__
        return Snapshot(kind, made_on_of(self.serving), CARRIER.pack(self, kind))

    def restore(self, snapshot: Snapshot) -> Observation:
        """Go on from there; what was observed last [R, F], as an algorithm's `_last_obs`.

        Raises UserError where anything else was served.
        """
        check_origin(snapshot, type(self).__name__, made_on_of(self.serving))
        CARRIER.unpack(snapshot.state, self)
        self._observed = observed = self.serving.observe()
        return observed

    def close(self) -> None:
        """Nothing is held open."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """The attribute of the environments, which have all in common."""
        if attr_name == "render_mode":
            value = None
        else:
            value = getattr(self if attr_name == MASKS else self.serving, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of all environments; they have none of their own."""
        if len(list(self._get_indices(indices))) != self.num_envs:
            raise NotImplementedError("the environments of a fleet have their attributes in common")
        setattr(self.serving, attr_name, value)


_FACE = (
    *("codec", "mask", "shared_by"),
    *("num_envs", "observation_space", "action_space", "render_mode", "metadata"),
)
CARRIER = replace(
    MANY,
    # Actions are handed over anew for every step; what was observed follows from the rest.
    left_out={
        **MANY.left_out,
        FleetVecEnv: LeftOut(constant=_FACE, rebuilt=("actions", "_observed")),
    },
)
"""What a snapshot carries."""


def _rows(info: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """From arrays [R] by name to a dict for each environment, of plain numbers."""
    names = tuple(info)
    columns: Iterable[tuple[Any, ...]] = zip(*(info[name].tolist() for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in columns]
