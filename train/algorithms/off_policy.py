"""DQN and QR-DQN over presets, SAC and TQC over the box, discounting by engine time.

They learn from a replay buffer, which is saved beside the model (`train.saved_model`).
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib import QRDQN, TQC
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from torch import nn

from policies.action_codec import BoxCodec, PresetCodec
from train.algorithms.base import CAUTION, Acting, Learner, first_tiers, linear, lower_bias
from train.algorithms.timing import TimedReplayBuffer

CAUTION_VALUE = 0.02  # that every further tier of a preset is worth less at first; returns are ~1


class OffPolicy(Learner, OffPolicyAlgorithm):
    """Learns again and again from what it did long ago."""

    FIXED: ClassVar[dict[str, Any]] = {"replay_buffer_class": TimedReplayBuffer}

    def _setup_model(self) -> None:
        super()._setup_model()
        cast(TimedReplayBuffer, self.replay_buffer).gamma = self.gamma

    def train(self, *args: Any, **options: Any) -> None:
        """Learn. What goes on on live has an empty buffer at first, and waits for a batch."""
        filled = cast(TimedReplayBuffer, self.replay_buffer).size()
        if self.tuned_from is None or filled >= self.batch_size:
            super().train(*args, **options)

    def first_update(self) -> tuple[int, str]:
        """What is collected before learning starts."""
        return self.learning_starts + 1, "learning_starts"

    def tiers_of_presets(self) -> NDArray[Any]:
        """[N] how far up the table each preset is: the sum of its tier indices."""
        return cast(PresetCodec, self.codec).presets.sum(axis=1)


class TimedDQN(OffPolicy, DQN):
    """Deep Q-network (Mnih et al. 2015)."""

    def acting(self) -> Acting:
        """The network of values."""
        return Acting(linear(self.q_net.q_net), self.q_net.activation_fn)

    def start_small(self) -> None:
        """Smaller presets seem to be worth more."""
        lower_bias(self.q_net.q_net[-1], CAUTION_VALUE * self.tiers_of_presets())
        self.q_net_target.load_state_dict(self.q_net.state_dict())


class TimedQRDQN(OffPolicy, QRDQN):
    """Quantile regression DQN (Dabney et al. 2018)."""

    def acting(self) -> Acting:
        """The network of quantiles; its last layer gives their mean, which actions go by."""
        *hidden, quantiles = linear(self.quantile_net.quantile_net)
        mean = nn.Linear(quantiles.in_features, quantiles.out_features // self.n_quantiles)
        with torch.no_grad():
            shape = self.n_quantiles, mean.out_features
            weight = quantiles.weight.double().view(*shape, -1).mean(0)
            mean.weight.copy_(weight)
            mean.bias.copy_(quantiles.bias.double().view(*shape).mean(0))
        return Acting((*hidden, mean), self.quantile_net.activation_fn)

    def start_small(self) -> None:
        """Smaller presets seem to be worth more, in every quantile."""
        by = np.tile(CAUTION_VALUE * self.tiers_of_presets(), self.n_quantiles)
        lower_bias(self.quantile_net.quantile_net[-1], by)
        self.quantile_net_target.load_state_dict(self.quantile_net.state_dict())


class _Squashed(OffPolicy):
    """A Gaussian actor squashed by tanh; its mean acts."""

    actor: Any

    def acting(self) -> Acting:
        """The layers of the mean, before tanh."""
        hidden = linear(self.actor.latent_pi)
        return Acting((*hidden, self.actor.mu), self.actor.activation_fn)

    def start_small(self) -> None:
        """The mean lies towards the first tiers; of prices, in the middle of them."""
        middle = cast(BoxCodec, self.codec).middle(first_tiers(self.codec.table))
        by = -middle if self.codec.table.kind == "prices" else -CAUTION * np.sign(middle)
        lower_bias(self.actor.mu, by)


class TimedSAC(_Squashed, SAC):
    """Soft actor-critic (Haarnoja et al. 2018)."""


class TimedTQC(_Squashed, TQC):
    """Truncated quantile critics (Kuznetsov et al. 2020)."""
