"""PPO and A2C over tiers, discounting by engine time."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from stable_baselines3 import A2C, PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import nn

from train.algorithms.base import Acting, Learner, first_biases, linear, lower_bias
from train.algorithms.request_encoder import RequestEncoder
from train.algorithms.tier_policy import TierPolicy
from train.algorithms.timing import TimedRolloutBuffer


class OnPolicy(Learner, OnPolicyAlgorithm):
    """An actor and a critic that learn from each rollout once and forget it."""

    POLICY: ClassVar[str | type] = TierPolicy
    FIXED: ClassVar[dict[str, Any]] = {"rollout_buffer_class": TimedRolloutBuffer}

    def first_update(self) -> tuple[int, str]:
        """A rollout."""
        return self.n_steps * self.n_envs, "n_steps"

    def acting(self) -> Acting:
        """The actor's hidden layers and its logits."""
        policy: Any = self.policy
        hidden = linear(policy.mlp_extractor.policy_net)
        first = policy.pi_features_extractor
        encoder = first if isinstance(first, RequestEncoder) else None
        layers = (*hidden, cast(nn.Linear, policy.action_net))
        return Acting(layers, policy.activation_fn, encoder=encoder)

    def start_small(self) -> None:
        """Of two neighbouring tiers the smaller is likelier; of prices the neutral one."""
        policy: Any = self.policy
        lower_bias(policy.action_net, first_biases(self.codec.table))


class TimedPPO(OnPolicy, PPO):
    """Proximal policy optimisation (Schulman et al. 2017)."""


class TimedA2C(OnPolicy, A2C):
    """Advantage actor-critic (Mnih et al. 2016), synchronous: a single step on every rollout."""
