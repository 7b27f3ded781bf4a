"""A live engine as a worker makes and steps it: networks of its own, episodes that it draws itself.

Each worker measures its own capacity and token time, beside the others, as it will serve: loads and
objectives are multiples of these. No trainer is imported, so that a worker is soon back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from train.config import TrainConfig
from train.ended_requests import ended_by_class
from train.workers.process import Stepped

if TYPE_CHECKING:
    from engine.protocol import Ints
    from engine.server import Server
    from envs.serve import ServeEnv
    from policies.actions import Actions
    from policies.features import Observation
    from train.curriculum import Curriculum
    from train.evaluation import LoadServer


@dataclass(frozen=True)
class LiveRecipe:
    """Loads a live server and makes the training environment on it."""

    config: TrainConfig
    actions: Actions
    load_server: LoadServer
    """A function of a module: it goes to the worker by its name."""
    threads: int
    dtype: str
    """The trainer's own: what is fastest cannot be measured while others measure it, too."""

    def __call__(self) -> LiveEngine:
        """Takes seconds. Raises UserError."""
        from envs.live import make_live
        from train.evaluation import served_workload
        from train.training_draw import training_draw

        config = self.config
        serving: Any = {"threads": self.threads, "dtype": self.dtype}
        server = self.load_server(replace(config.serving, **serving))
        draw, curriculum = training_draw(server, served_workload(config.serving), config)
        env = make_live(
            server=server,  # type: ignore[arg-type]  # a live one: check_serving said so
            requests=draw,
            actions=self.actions,
            reward=config.reward.goodput(),
            decide_every=config.learning.decide_every,
        )
        return LiveEngine(env, server, curriculum)


class LiveEngine:
    """Steps one environment, and begins its next episode where one is over."""

    def __init__(self, env: ServeEnv, server: Server, curriculum: Curriculum | None) -> None:
        self._env, self._server, self._curriculum = env, server, curriculum
        self._seen = 0  # records of the episode that were told of

    def reset(self, seed: int | None) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode."""
        self._seen = 0
        return self._env.reset(seed=seed)

    def step(self, action: Ints, share: float) -> Stepped:
        """Serve under the tiers `action` [D]; `share` of training is behind."""
        if self._curriculum is not None:
            self._curriculum.share = share
        observation, reward, _, truncated, info = self._env.step(action)
        engine = self._env.engine
        assert engine is not None
        records = engine.records()
        ended = ended_by_class(records[self._seen :], len(engine.class_names))
        self._seen = len(records)
        measured = engine.energy.is_measured
        begun = self.reset(None) if truncated else None
        return Stepped(observation, float(np.asarray(reward)), info, ended, measured, begun)

    def close(self) -> None:
        """Let go of the environment and of what the server holds of the machine."""
        self._env.close()
        close = getattr(self._server, "close", None)
        if close is not None:
            close()
