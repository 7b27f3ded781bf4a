"""PPO over tiers with an LSTM, for what a single observation does not show: trends and regimes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sb3_contrib import RecurrentPPO

from train.algorithms.base import Acting
from train.algorithms.on_policy import OnPolicy
from train.algorithms.tier_policy import RecurrentTierPolicy
from train.algorithms.timing import TimedRecurrentBuffer


class TimedRecurrentPPO(OnPolicy, RecurrentPPO):
    """PPO with an LSTM each for actor and critic, as in sb3-contrib."""

    POLICY: ClassVar[str | type] = RecurrentTierPolicy
    FIXED: ClassVar[dict[str, Any]] = {}

    def _setup_model(self) -> None:
        """sb3-contrib names its own buffer here, so ours takes that one's place."""
        super()._setup_model()
        theirs: Any = self.rollout_buffer
        self.rollout_buffer = TimedRecurrentBuffer(
            theirs.buffer_size,
            theirs.observation_space,
            theirs.action_space,
            theirs.hidden_state_shape,
            theirs.device,
            gae_lambda=theirs.gae_lambda,
            gamma=theirs.gamma,
            n_envs=theirs.n_envs,
        )

    def acting(self) -> Acting:
        """The actor's LSTM, its hidden layers and its logits."""
        policy: Any = self.policy
        return super().acting()._replace(lstm=policy.lstm_actor)

    def greedy(self, observations: Iterable[Any], legal: Any = None) -> NDArray[Any]:
        """Deterministic actions of episodes that begin with the first observation."""
        state, chosen = None, []
        for rows in observations:
            action, state = self.predict(rows, state, deterministic=True)
            chosen.append(action)
        return np.stack(chosen)
