"""What an engine did lately, watched from outside the environment: figures for bar and TensorBoard.

Attainment and goodput are those of requests that ended within the last seconds of the engine's
clock. The whole episode's figures are `eval.metrics`' and come when it is over.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from engine.protocol import Ints
from engine.request import RequestRecord
from envs.serve import ServeEnv
from eval.metrics import attainment
from policies.features import Observation

SPAN_S = 30.0
TIME = "time/"
REWARD = "reward/"


@dataclass(frozen=True)
class Step:
    """One decision and what came of it."""

    action: Ints
    info: dict[str, Any]
    ended: tuple[RequestRecord, ...]


class Watched(gymnasium.Wrapper[Observation, Ints, Observation, Ints]):
    """Keeps the steps of the last `span_s` engine seconds, across episodes."""

    def __init__(self, env: gymnasium.Env[Observation, Ints], span_s: float = SPAN_S) -> None:
        super().__init__(env)
        self.span_s = span_s
        self.steps: deque[Step] = deque()
        self.elapsed_s = 0.0  # engine time that the window holds
        self._seen = 0

    @property
    def serving(self) -> ServeEnv:
        """The environment itself."""
        inner = self.env.unwrapped
        assert isinstance(inner, ServeEnv)
        return inner

    def reset(self, **options: Any) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; the window goes on."""
        self._seen = 0
        return super().reset(**options)

    def step(self, action: Ints) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and note what ended before the engine is replaced."""
        result = super().step(action)
        info = result[-1]
        engine = self.serving.engine
        records = engine.records() if engine is not None else []
        self.steps.append(Step(np.array(action), info, tuple(records[self._seen :])))
        self._seen = len(records)
        self.elapsed_s += info["elapsed_s"]
        while self.elapsed_s - self.steps[0].info["elapsed_s"] >= self.span_s:
            self.elapsed_s -= self.steps.popleft().info["elapsed_s"]
        return result

    def figures(self) -> dict[str, float]:
        """Tags and values for TensorBoard; a figure that has nothing to count is left out."""
        total_s = self.elapsed_s
        if not self.steps or total_s <= 0:
            return {}
        ended = [record for step in self.steps for record in step.ended]
        table = self.serving.actions
        found = {"slo/attainment": attainment(ended)}
        for index, name in enumerate(table.class_names):
            own = [r for r in ended if r.slo_class == index]
            found[f"slo/attainment/{name}"] = attainment(own)
        found["slo/goodput_tps"] = sum(r.good_tokens for r in ended) / total_s
        found["slo/valid_tps"] = self._sum("valid_tokens") / total_s
        iterations = self._sum("iterations")
        found["engine/throughput_tps"] = self._sum("emitted_tokens") / total_s
        found["engine/iterations_per_s"] = iterations / total_s
        found["engine/tokens_per_iteration"] = self._sum("emitted_tokens") / max(iterations, 1)
        engine = self.serving.engine
        is_measured = engine is not None and engine.energy.is_measured
        watts = "engine/watts" if is_measured else "engine/watts_modelled"
        found[watts] = self._sum("energy_joules") / total_s
        for key in sorted(self.steps[-1].info):
            if key.startswith(REWARD):
                found[key] = self._sum(key) / len(self.steps)
            elif key.startswith(TIME):
                found[f"share_of_time/{key.removeprefix(TIME)}"] = self._sum(key) / total_s
        found["share_of_time/idle"] = max(1.0 - self._sum("busy_s") / total_s, 0.0)
        plans = [table.decode(step.action) for step in self.steps]
        for index, name in enumerate(table.class_names):
            for part in ("depth", "width", "nodes"):
                chosen = [getattr(plan, part)[index] for plan in plans]
                found[f"action/{part}/{name}"] = float(np.mean(chosen))
        return {key: float(value) for key, value in found.items() if np.isfinite(value)}

    def _sum(self, key: str) -> float:
        return float(sum(step.info.get(key, 0.0) for step in self.steps))
