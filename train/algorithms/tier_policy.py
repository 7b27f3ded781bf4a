"""Policies over tiers: every dimension of a `MultiDiscrete` action in one pass.

Stable-Baselines3 makes a `Categorical` of each dimension, checks it and draws from it by itself.
With a dozen dimensions and a small network that is most of a training step; here the dimensions are
the rows of one padded table. Probabilities, entropies and modes are the same (a test compares).
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.distributions import MaskableDistribution
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from stable_baselines3.common.distributions import MultiCategoricalDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor

ABSENT = -1e9
"""Log-probability of the tiers that a shorter dimension lacks: finite, so that 0 · it is 0."""


class TierDistribution(MultiCategoricalDistribution):
    """D independent choices among K_1 … K_D tiers, from logits [B, K_1 + … + K_D]."""

    log_p: Tensor
    """[B, D, K] of each tier, K the most that a dimension has."""

    def __init__(self, action_dims: list[int]) -> None:
        """`action_dims` are the K_i."""
        super().__init__(action_dims)
        most = max(action_dims)
        self._table = torch.tensor(
            [d * most + tier for d, count in enumerate(action_dims) for tier in range(count)]
        )
        self._shape = len(action_dims), most

    def proba_distribution(self, action_logits: Tensor) -> Self:
        """Take these logits from now on."""
        self.log_p = self._padded(action_logits).log_softmax(-1)
        return self

    def _padded(self, values: Tensor) -> Tensor:
        """[B, K_1 + … + K_D] as [B, D, K], ABSENT where a dimension has no such tier."""
        dimensions, most = self._shape
        table = values.new_full((len(values), dimensions * most), ABSENT)
        table = table.index_copy(1, self._table.to(values.device), values)
        return table.view(-1, dimensions, most)

    def log_prob(self, actions: Tensor) -> Tensor:
        """[B] of actions [B, D], all dimensions together."""
        return self.log_p.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1).sum(-1)

    def entropy(self) -> Tensor:
        """[B] nats, all dimensions together."""
        return -(self.log_p.exp() * self.log_p).sum((-2, -1))

    def sample(self) -> Tensor:
        """[B, D] drawn, by the largest of log-probability plus Gumbel noise."""
        noise = torch.empty_like(self.log_p).exponential_().log_().neg_()
        return (self.log_p + noise).argmax(-1)

    def mode(self) -> Tensor:
        """[B, D] the likeliest tiers, of equals the smaller."""
        return self.log_p.argmax(-1)


class MaskableTierDistribution(TierDistribution, MaskableDistribution):
    """The same, with tiers ruled out: each dimension must keep one."""

    def apply_masking(self, masks: Any) -> None:
        """Rule out the tiers whose mask [B, K_1 + … + K_D] is 0; None rules out nothing.

        Called once for each `proba_distribution`, as sb3-contrib's policy does.
        """
        if masks is None:
            return
        given = torch.as_tensor(masks, dtype=self.log_p.dtype, device=self.log_p.device)
        legal = self._padded(given.view(-1, len(self._table))) > 0
        self.log_p = self.log_p.masked_fill(~legal, ABSENT).log_softmax(-1)


class _OverTiers:
    """Stands before a policy of Stable-Baselines3 and gives it a distribution over tiers."""

    DISTRIBUTION: ClassVar[type[TierDistribution]] = TierDistribution
    action_space: spaces.Space[Any]
    action_dist: Any

    def _build(self, lr_schedule: Any) -> None:
        if not isinstance(self.action_space, spaces.MultiDiscrete):
            raise TypeError(f"actions are {self.action_space}; expected a MultiDiscrete of tiers")
        self.action_dist = self.DISTRIBUTION(self.action_space.nvec.tolist())
        super()._build(lr_schedule)  # type: ignore[misc]


class TierPolicy(_OverTiers, ActorCriticPolicy):
    """Stable-Baselines3's `MlpPolicy` with the distribution above."""


class RecurrentTierPolicy(_OverTiers, RecurrentActorCriticPolicy):
    """sb3-contrib's `MlpLstmPolicy` with the same."""


class MaskableTierPolicy(_OverTiers, MaskableActorCriticPolicy):
    """sb3-contrib's maskable `MlpPolicy` with the same, masked."""

    DISTRIBUTION = MaskableTierDistribution
