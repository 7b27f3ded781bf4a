"""`DraftGym/Serve-v0` many times over as a Gymnasium vector environment, in one call a step.

`gymnasium.make_vec("DraftGym/Serve-v0", num_envs=64, …)` returns it. It gives what a
`SyncVectorEnv` of single environments gives, infos included, at a hundredth of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.drawing import Draw
from engine.errors import UserError
from engine.protocol import Bools, Floats, Ints
from engine.workload import WorkloadConfig
from envs.episodes import ReplayEpisodes
from envs.fleet import ServeFleet
from envs.live import chosen_actions
from envs.observing import Size
from envs.reward import GoodputReward
from policies.actions import ActionTable
from policies.features import Observation

if TYPE_CHECKING:
    from engine.replay.server import ReplayServer
    from engine.snapshot_origin import Snapshot


class ServeVectorEnv(VectorEnv[Observation, Ints, NDArray[Any]]):
    """Environments of one `ServeFleet`; one that is truncated is reset by the step that follows.

    That step ignores its action and rewards nothing. Every array is fresh.
    """

    metadata = {  # noqa: RUF012  (Gymnasium's own declaration)
        "render_modes": [],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(self, serving: ServeFleet, seed: int | None = None) -> None:
        """`seed`, `seed` + 1, … stand in for the first reset's when that is given none."""
        self.serving, self.num_envs = serving, serving.replicas
        self.single_observation_space = serving.observation_space
        self.single_action_space = serving.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._first_seed = seed
        self._over = np.zeros(self.num_envs, np.bool_)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode everywhere, with the seeds s, s + 1, … where one is given.

        The option `reset_mask` [R] restricts it to some environments. Raises UserError.
        """
        chosen = np.ones(self.num_envs, np.bool_)
        options = dict(options or {})
        if "reset_mask" in options:
            chosen = np.asarray(options.pop("reset_mask"))
        if options or chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_:
            raise UserError(
                f"reset got the options {sorted(options)} and a reset_mask of shape {chosen.shape} "
                f"and type {chosen.dtype}; expected no other option, and a truth value for each of "
                f"{self.num_envs} environments"
            )
        if seed is None:
            seed, self._first_seed = self._first_seed, None
        seeds = (
            [None if seed is None else seed + i for i in range(self.num_envs)]
            if (seed is None or isinstance(seed, int))
            else list(seed)
        )
        if len(seeds) != self.num_envs:
            raise UserError(f"reset got {len(seeds)} seeds; expected {self.num_envs}")
        for replica in np.flatnonzero(chosen).tolist():
            self.serving.reset(replica, seeds[replica])
        self._over[chosen] = False
        info: dict[str, Any] = {}
        _note(info, self.serving.nothing(), chosen)
        return self.serving.observe(), info

    def step(self, actions: Ints) -> tuple[Observation, Floats, Bools, Bools, dict[str, Any]]:
        """Step all but the environments whose episode is over, which are reset."""
        fresh, acting = self._over, ~self._over
        begun = _where(fresh)
        for replica in begun:
            self.serving.reset(replica)
        step = self.serving.step(actions, acting)
        info: dict[str, Any] = {}
        if len(begun) < self.num_envs:
            _note(info, step.info, acting)
        if begun:
            _note(info, self.serving.nothing(), fresh)
        if over := _where(step.truncated):
            _note_serving(info, self.serving, over, step.truncated)
        self._over = step.truncated
        terminated = np.zeros(self.num_envs, np.bool_)
        return step.observation, step.reward, terminated, step.truncated.copy(), info

    def snapshot(self) -> Snapshot:
        """Every episode as it stands and who draws the next ones (`envs.snapshot`)."""
        from envs.snapshot import take_many

        return take_many(self)

    def restore(self, snapshot: Snapshot) -> Observation:
        """Go on from there; what was observed last. Raises UserError where it does not fit."""
        from envs.snapshot import put_back_many

        return put_back_many(self, snapshot)


def make_replay_vector(
    *,
    num_envs: int = 1,
    server: ReplayServer | Callable[[], ReplayServer] | None = None,
    recording: str | Path | None = None,
    profile: str | Path | None = None,
    slots: int = 16,
    workload: str | WorkloadConfig = "shifting",
    load: float | None = None,
    held_out: bool = False,
    requests: Draw | None = None,
    classes: ClassTable = DEFAULT_CLASSES,
    actions: ActionTable | None = None,
    lossless: bool = True,
    observation: Size = "aggregate",
    reward: GoodputReward | None = None,
    decide_every: int = 1,
    max_decisions: int | None = None,
    seed: int | None = None,
) -> ServeVectorEnv:
    """The environment that `gymnasium.make_vec("DraftGym/Serve-v0", num_envs, …)` returns.

    Options as of `envs.replay.make_replay`; the recording is loaded at once. Raises UserError, also
    for what a fleet does not serve (`engine.replay.fleet`).
    """
    episodes = ReplayEpisodes(
        server, recording, profile, slots, workload, load, held_out, requests, classes
    )
    table = chosen_actions(classes, actions, lossless)
    serving = ServeFleet(
        episodes, num_envs, table, reward, decide_every, max_decisions, observation
    )
    return ServeVectorEnv(serving, seed)


def _where(is_so: Bools) -> list[int]:
    """The environments of which it is so: mostly none, which a list knows sooner than NumPy."""
    listed = is_so.tolist()
    return [replica for replica, it_is in enumerate(listed) if it_is] if True in listed else []


def _note(info: dict[str, Any], values: dict[str, NDArray[Any]], where: Bools) -> None:
    """Put values [R] into a vector environment's info, beside the mask of those that have one."""
    mask = where.copy()
    everybody = False not in where.tolist()
    for name, value in values.items():
        if everybody:
            info[name], info[f"_{name}"] = value, mask
        elif name in info:
            info[name] = np.where(where, value, info[name])
            info[f"_{name}"] = mask | info[f"_{name}"]
        else:
            info[name], info[f"_{name}"] = np.where(where, value, 0), mask


def _note_serving(info: dict[str, Any], serving: ServeFleet, over: list[int], where: Bools) -> None:
    """Put the figures of the episodes that are over, `where` [R], into the info."""
    figures = [serving.serving(replica) for replica in over]
    table: dict[str, Any] = {}
    for name in figures[0]:
        column = np.zeros(len(where))
        column[where] = [of[name] for of in figures]
        _note(table, {name: column}, where)
    info["serving"], info["_serving"] = table, where.copy()
