"""Live engines in worker processes, as Stable-Baselines3 steps environments side by side.

The face is that of `train.watched_singles`: reset within the step that ends, the last observation
of an episode in `terminal_observation`, figures per second of one engine. A worker that dies is
started again, later each time; what it was serving is lost, and training goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from engine.errors import UserError
from engine.protocol import Bools, Ints, Limits
from envs.observing import vector_space
from policies.action_codec import ActionCodec
from policies.action_mask import ActionMask
from policies.actions import ActionTable
from policies.features import Observation, feature_table
from train.action_space import space_of
from train.sb3_vec_env import MASKS, NoObjects
from train.summed_window import SummedWindow
from train.window import SPAN_S
from train.workers.failures import Died, Failures
from train.workers.process import Recipe, Stepped
from train.workers.worker import Worker

LOG = logging.getLogger(__name__)
PATIENCE_S = 300.0
"""Without an answer to a step a worker hangs: one of long prompts takes a tenth of that."""
FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 60.0
"""Before a worker is started again; each time in a row twice as long."""
MOST_IN_A_ROW = 5
"""Restarts; a worker that dies once more will always die."""
HEALTHY = 32
"""Decisions served after which deaths of before are no longer in a row with the next."""
LOST = "lost"
"""Key of `info` under which a step that nobody served says why."""
NOTHING = {"attainment": float("nan"), "goodput_tps": float("nan")}


class LiveWorkers(SummedWindow, NoObjects):
    """One engine a worker. They are started by the first reset."""

    actions: Ints

    def __init__(
        self,
        recipes: Sequence[Recipe],
        codec: ActionCodec,
        folder: Path,
        limits: Limits | None = None,
        share: Callable[[], float] = lambda: 0.0,
        span_s: float = SPAN_S,
        patience_s: float = PATIENCE_S,
        first_delay_s: float = FIRST_DELAY_S,
    ) -> None:
        """Every recipe makes an engine; `folder` keeps what is left of those that died.

        `limits` are the engines', which masks go by; `share` says how much of training is behind.
        """
        self.table, self.codec = codec.table, codec
        self.failures, self.restarts = Failures(folder), 0
        self._share, self._first_delay_s = share, first_delay_s
        self._workers = [
            Worker(recipe, folder / f"faults-{index + 1}.txt", patience_s)
            for index, recipe in enumerate(recipes)
        ]
        self._in_a_row = [0] * len(self._workers)  # deaths of each, with little served between
        self._served = [0] * len(self._workers)  # decisions of each since it was started
        self._base: list[int | None] = [None] * len(self._workers)  # seeds of the first episodes
        features = feature_table(self.table.class_names)
        self._mask = (
            ActionMask(self.table, features, limits or Limits())
            if isinstance(self.table, ActionTable)
            else None
        )
        self._observed: list[Observation] = []
        self._power_is_measured = False
        self.begin_window(span_s)
        super().__init__(len(self._workers), vector_space(features), space_of(codec))

    @property
    def pids(self) -> list[int | None]:
        """Of the worker processes."""
        return [worker.pid for worker in self._workers]

    def reset(self) -> Observation:
        """Begin an episode everywhere, with the seeds that `seed` left behind.

        Raises UserError where a worker cannot be had.
        """
        self._base = list(self._seeds)
        for worker, seed in zip(self._workers, self._seeds, strict=True):
            if worker.pid is None:
                worker.start()  # all load at a time
            worker.ask("reset", seed)
        self._observed = []
        for index, worker in enumerate(self._workers):
            try:
                first, info = worker.answer()
            except Died as death:
                first, info = self._revived(index, death)
            self._observed.append(first)
            self.reset_infos[index] = info
        self._reset_seeds()
        self._reset_options()
        return np.stack(self._observed)

    def step_async(self, actions: np.ndarray) -> None:
        """Have every worker take its action, [R, …] in all."""
        self.actions = self.codec.decode(actions)
        share = self._share()
        for worker, action in zip(self._workers, self.actions, strict=True):
            worker.ask("step", action, share)

    def step_wait(self) -> VecEnvStepReturn:
        """What came of it, behind the slowest; every array is fresh.

        A worker that died has its episode cut where it was last seen: the step earns nothing and
        takes no time, so what is bootstrapped is the value of where it began, and neither it nor
        the decision is judged by an accident. Raises UserError for one that an engine raised, and
        where a worker dies again and again.
        """
        steps: dict[int, Stepped] = {}
        deaths: dict[int, Died] = {}
        for index, worker in enumerate(self._workers):
            try:
                steps[index] = worker.answer()
            except Died as death:
                deaths[index] = death
        if steps:
            infos = [step.info for step in steps.values()]
            ended = np.sum([step.ended for step in steps.values()], axis=0)
            self.note(infos, [self.actions[index] for index in steps], ended)
            self._power_is_measured = all(step.power_is_measured for step in steps.values())
        rewards, dones = np.zeros(self.num_envs), np.zeros(self.num_envs, np.bool_)
        told: list[dict[str, Any]] = []
        for index in range(self.num_envs):
            if index in steps:
                rewards[index], dones[index] = steps[index].reward, steps[index].begun is not None
                told.append(self._taken(index, steps[index]))
            else:
                dones[index] = True
                told.append(self._lost(index, deaths[index]))
        return np.stack(self._observed), rewards, dones, told

    def _taken(self, index: int, step: Stepped) -> dict[str, Any]:
        """The info of a step that was served; the worker's observation moves on."""
        self._served[index] += 1
        if self._served[index] >= HEALTHY:
            self._in_a_row[index] = 0
        info = step.info | {"TimeLimit.truncated": step.begun is not None}
        self._observed[index] = step.observation
        if step.begun is not None:
            info["terminal_observation"] = step.observation
            self._observed[index], self.reset_infos[index] = step.begun
        return info

    def _lost(self, index: int, death: Died) -> dict[str, Any]:
        """The info of a step that nobody served; the worker begins anew."""
        numbers = [k for k, v in self.reset_infos[index].items() if isinstance(v, int | float)]
        info = dict.fromkeys(numbers, 0.0) | {
            "TimeLimit.truncated": True,
            "terminal_observation": self._observed[index],
            "serving": dict(NOTHING),
            LOST: death.reason,
        }
        self._observed[index], self.reset_infos[index] = self._revived(index, death)
        return info

    def _revived(self, index: int, death: Died) -> tuple[Observation, dict[str, Any]]:
        """What the worker's next episode begins with, in a new process; waits before each try.

        Raises UserError where too many died in a row.
        """
        worker = self._workers[index]
        while True:
            sleep(self._delay_s(index, death))
            self.restarts += 1
            self._served[index] = 0
            worker.start()
            worker.ask("reset", self._next_seed(index))
            try:
                begun: tuple[Observation, dict[str, Any]] = worker.answer()
                return begun
            except Died as again:
                death = again

    def _delay_s(self, index: int, death: Died) -> float:
        """Keep what it left, and say how long to wait before it is started again."""
        who = f"live engine {index + 1} of {self.num_envs}"
        self.failures.add(who, death)
        self._in_a_row[index] += 1
        times = self._in_a_row[index]
        if times > MOST_IN_A_ROW:
            raise UserError(
                f"{who} died {times} times with hardly a decision between; lastly it "
                f"{death.sentence}; mend that (all that they left is in {self.failures.path})"
            )
        delay_s = min(self._first_delay_s * 2.0 ** (times - 1), LONGEST_DELAY_S)
        LOG.warning(
            "%s %s after %d decisions; its episode is cut and it is started again in %g s (%s)",
            *(who, death.sentence, self._served[index], delay_s, self.failures.path),
        )
        return delay_s

    def _next_seed(self, index: int) -> int:
        """Other arrivals than the worker had before, and than any other has."""
        entropy = (self._base[index] or 0, index, self.restarts)
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def figures(self) -> dict[str, float]:
        """Tags and values for TensorBoard; a figure that has nothing to count is left out."""
        found = super().figures()
        if self._power_is_measured and "engine/watts_modelled" in found:
            found["engine/watts"] = found.pop("engine/watts_modelled")
        return found | {"workers/restarts": float(self.restarts)}

    def action_masks(self) -> Bools:
        """[R, Σ nvec] the tiers of use to each engine as it stands."""
        assert self._mask is not None and self._observed, "masks are of whole plans, after a reset"
        return self._mask.legal(np.stack(self._observed))

    def close(self) -> None:
        """End all workers; may be called twice. Nothing is kept where none died."""
        for worker in self._workers:
            worker.hang_up()
        for worker in self._workers:
            worker.close()
        folder = self.failures.path.parent
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """What all have in common: there is nothing to see, and there are masks."""
        known = {"render_mode": None, MASKS: self.action_masks}
        if attr_name not in known:
            raise AttributeError(f"{attr_name}: is in another process")
        return [known[attr_name] for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Never."""
        raise NotImplementedError(f"{attr_name}: a worker's engine is as it was made")
