"""What a fleet's engines did lately: the figures of `train.window`, of all replicas together.

Rates are per second of one engine, so they compare with those of a single environment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from engine.protocol import Floats
from envs.fleet import ServeFleet, Step
from policies.action_codec import ActionCodec
from train.ended_requests import ENDED
from train.sb3_vec_env import FleetVecEnv
from train.window import ACTION, REWARD, SPAN_S, TIME

PLAN = ("depth", "width", "nodes")


class WatchedFleet(FleetVecEnv):
    """Keeps what the last `span_s` engine seconds of every replica brought, across episodes."""

    def __init__(
        self, serving: ServeFleet, span_s: float = SPAN_S, codec: ActionCodec | None = None
    ) -> None:
        super().__init__(serving, codec)
        self.span_s = span_s
        names = serving.actions.class_names
        self._columns = [
            "steps",
            *(f"{kind}/{name}" for kind in ENDED for name in names),
            *(f"action/{part}/{name}" for part in PLAN for name in names),
            *(["action/running"] if serving.actions.sizes_batch else []),
        ]
        self._info_names: list[str] = []
        self._sums: deque[Floats] = deque()  # of each step over the replicas, `elapsed_s` first
        self.elapsed_s = 0.0  # engine time of all replicas that the window holds

    def step_wait(self) -> VecEnvStepReturn:
        """Step, and note what came of it."""
        result = super().step_wait()
        if self.latest is not None:
            self._note(self.latest)
        return result

    def _note(self, step: Step) -> None:
        self._info_names = list(step.info)
        sums = np.array(
            [
                *(values.sum() for values in step.info.values()),
                self.num_envs,
                *(total for kind in ENDED for total in step.ended[kind].sum(axis=0)),
                *(total for part in self.acted for total in part.sum(axis=0)),
            ],
            np.float64,
        )
        self._sums.append(sums)
        self.elapsed_s += sums[0]
        while self.elapsed_s - self._sums[0][0] >= self.span_s * self.num_envs:
            self.elapsed_s -= self._sums.popleft()[0]

    def figures(self) -> dict[str, float]:
        """Tags and values for TensorBoard; a figure that has nothing to count is left out."""
        if not self._sums or self.elapsed_s <= 0:
            return {}
        names = [*self._info_names, *self._columns]
        total = dict(zip(names, np.sum(self._sums, axis=0).tolist(), strict=True))
        return figures_of(total, self.elapsed_s, self.serving.actions.class_names)


def figures_of(
    total: Mapping[str, float], total_s: float, classes: Sequence[str]
) -> dict[str, float]:
    """The figures that sums over steps come to, of `total_s` engine seconds.

    `total` has the numbers of a step's info, `steps`, what `action/…` stood for, and by class those
    of ENDED.
    """

    def attainment(of: Sequence[str]) -> float:
        counted = sum(total[f"counted/{name}"] for name in of)
        met = sum(total[f"attained/{name}"] for name in of)
        return met / counted if counted else float("nan")

    found = {"slo/attainment": attainment(classes)}
    found |= {f"slo/attainment/{name}": attainment((name,)) for name in classes}
    good_tokens = sum(total[f"good_tokens/{name}"] for name in classes)
    iterations = total["iterations"]
    found |= {
        "slo/goodput_tps": good_tokens / total_s,
        "slo/valid_tps": total["valid_tokens"] / total_s,
        "engine/throughput_tps": total["emitted_tokens"] / total_s,
        "engine/iterations_per_s": iterations / total_s,
        "engine/tokens_per_iteration": total["emitted_tokens"] / max(iterations, 1),
        "engine/watts_modelled": total["energy_joules"] / total_s,
    }
    for name, value in total.items():
        if name.startswith((REWARD, ACTION)):
            found[name] = value / total["steps"]
        elif name.startswith(TIME):
            found[f"share_of_time/{name.removeprefix(TIME)}"] = value / total_s
    found["share_of_time/idle"] = max(1.0 - total["busy_s"] / total_s, 0.0)
    return {key: float(value) for key, value in found.items() if np.isfinite(value)}
