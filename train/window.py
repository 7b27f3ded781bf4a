"""One environment watched from outside: what its engine did lately, for bar and TensorBoard.

Attainment and goodput are those of requests that ended within the last seconds of the engine's
clock. The whole episode's figures are `eval.metrics`' and come when it is over. Actions pass
through here, so an algorithm's are taken to tiers here, too (`policies.action_codec`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from engine.protocol import Bools, Ints
from engine.request import RequestRecord, Status
from engine.snapshot_origin import Snapshot, check_origin
from engine.snapshot_values import Carrier
from envs.observing import of_engine
from envs.serve import ServeEnv
from eval.metrics import attainment
from policies.action_codec import ActionCodec, TierCodec
from policies.action_mask import ActionMask
from policies.actions import ActionTable
from policies.features import Observation
from train.action_space import space_of

SPAN_S = 30.0
TIME = "time/"
REWARD = "reward/"
ACTION = "action/"


@dataclass(frozen=True)
class Step:
    """One decision and what came of it."""

    action: Ints
    info: dict[str, Any]
    ended: tuple[RequestRecord, ...]


WATCHED = "Watched"
KEPT = ("steps", "elapsed_s", "_seen")
CARRIER = Carrier(left_out={}, records=(Step, RequestRecord, Status), rebuild={})
"""What a snapshot carries of the window."""


class Watched(gymnasium.Wrapper[Observation, Any, Observation, Ints]):
    """Keeps the steps of the last `span_s` engine seconds, across episodes."""

    def __init__(
        self,
        env: gymnasium.Env[Observation, Ints],
        span_s: float = SPAN_S,
        codec: ActionCodec | None = None,
    ) -> None:
        """Actions are the codec's; without one they are tier indices [D]."""
        super().__init__(env)
        self.span_s = span_s
        self.codec = codec or TierCodec(self.serving.actions)
        self.action_space = space_of(self.codec)
        self._mask: ActionMask | None = None
        self._observed: Observation | None = None
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
        self._observed, info = super().reset(**options)
        return self._observed, info

    def action_masks(self) -> Bools:
        """[Σ nvec] the tiers of use as the environment stands."""
        engine = self.serving.engine
        assert engine is not None and self._observed is not None, "reset comes first"
        if self._mask is None:
            table = self.serving.actions
            assert isinstance(table, ActionTable), "masks are of whole plans"
            self._mask = ActionMask(table, self.serving.features, engine.limits)
        return self._mask.legal(of_engine(self._observed))

    def step(self, action: Any) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and note what ended before the engine is replaced."""
        action = self.codec.decode(np.asarray(action)[None])[0]
        result = super().step(action)
        self._observed, info = result[0], result[-1]
        engine = self.serving.engine
        records = engine.records() if engine is not None else []
        self.steps.append(Step(np.array(action), info, tuple(records[self._seen :])))
        self._seen = len(records)
        self.elapsed_s += info["elapsed_s"]
        while self.elapsed_s - self.steps[0].info["elapsed_s"] >= self.span_s:
            self.elapsed_s -= self.steps.popleft().info["elapsed_s"]
        return result

    def snapshot(self) -> Snapshot:
        """The episode as it stands, who draws the next, and the window; UserError on live."""
        serving = self.serving.snapshot()
        kept = {name: getattr(self, name) for name in KEPT}
        state = {"serving": serving.state, "window": CARRIER.pack(kept, WATCHED)}
        return Snapshot(WATCHED, serving.made_on, state)

    def restore(self, snapshot: Snapshot) -> Observation | None:
        """Go on from there, after a `reset`; what was observed last.

        Raises UserError where anything else was served.
        """
        check_origin(snapshot, WATCHED, snapshot.made_on)  # the rest is for the inner one to say
        of_serving = Snapshot("ServeEnv", snapshot.made_on, snapshot.state["serving"])
        self._observed = self.serving.restore(of_serving)
        for name, value in CARRIER.unpack(snapshot.state["window"]).items():
            setattr(self, name, value)
        return self._observed

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
        chosen = [table.figures(step.action) for step in self.steps]
        for name in chosen[0]:
            found[f"{ACTION}{name}"] = float(np.mean([of[name] for of in chosen]))
        return {key: float(value) for key, value in found.items() if np.isfinite(value)}

    def _sum(self, key: str) -> float:
        return float(sum(step.info.get(key, 0.0) for step in self.steps))
