"""The one-pass distribution over tiers against Stable-Baselines3's, one `Categorical` each."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.distributions import MaskableMultiCategoricalDistribution
from scipy.stats import chisquare
from stable_baselines3.common.distributions import MultiCategoricalDistribution

from train.algorithms.tier_policy import (
    MaskableTierDistribution,
    MaskableTierPolicy,
    RecurrentTierPolicy,
    TierDistribution,
    TierPolicy,
)

DIMS = [3, 1, 5, 2]


def both(rows: int = 40) -> tuple[TierDistribution, MultiCategoricalDistribution]:
    logits = 3 * torch.randn(rows, sum(DIMS), generator=torch.Generator().manual_seed(1))
    ours, theirs = TierDistribution(DIMS), MultiCategoricalDistribution(DIMS)
    return ours.proba_distribution(logits), theirs.proba_distribution(logits)


def test_probabilities_entropies_and_modes_are_stable_baselines() -> None:
    ours, theirs = both()
    actions = theirs.sample()
    for mine, other in (
        (ours.log_prob(actions), theirs.log_prob(actions)),
        (ours.entropy(), theirs.entropy()),
        (ours.mode(), theirs.mode()),
    ):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(ours.log_prob(actions), theirs.log_prob(theirs.mode()))


def test_gradients_are_stable_baselines() -> None:
    logits = torch.randn(7, sum(DIMS), dtype=torch.float64)
    actions = TierDistribution(DIMS).proba_distribution(logits).sample()
    found = []
    for kind in (TierDistribution, MultiCategoricalDistribution):
        given = logits.clone().requires_grad_()
        made = kind(DIMS).proba_distribution(given)
        (made.log_prob(actions).sum() + 0.3 * made.entropy().sum()).backward()
        assert given.grad is not None
        found.append(given.grad)
    torch.testing.assert_close(*found)


def test_draws_follow_the_probabilities() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([[0.0, 1.0, -1.0, 0.0, 2.0, 0.0, 0.0, -3.0, 1.0, 0.5, 0.0]])
    draws = TierDistribution(DIMS).proba_distribution(logits.expand(20_000, -1)).sample().numpy()
    first = 0
    for d, count in enumerate(DIMS):
        expected = torch.softmax(logits[0, first : first + count], 0).double().numpy()
        seen = np.bincount(draws[:, d], minlength=count)
        assert len(seen) == count  # a tier that the dimension lacks is never drawn
        if count > 1:
            assert chisquare(seen, expected / expected.sum() * len(draws)).pvalue > 1e-3
            assert chisquare(seen, np.full(count, len(draws) / count)).pvalue < 1e-3
        first += count


def test_the_policy_has_it_and_survives_odd_dimensions() -> None:
    policy = TierPolicy(
        spaces.Box(-1, 1, (4,)), spaces.MultiDiscrete(DIMS), lambda _: 1e-3, net_arch=[8]
    )
    actions, values, log_prob = policy(torch.zeros(6, 4))
    assert actions.shape == (6, len(DIMS)) and values.shape == (6, 1) and log_prob.shape == (6,)
    assert np.array_equal(policy.predict(np.zeros(4), deterministic=True)[0].shape, (len(DIMS),))
    with pytest.raises(TypeError, match="expected a MultiDiscrete"):
        TierPolicy(spaces.Box(-1, 1, (4,)), spaces.Box(-1, 1, (2,)), lambda _: 1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_masked_probabilities_are_sb3_contribs(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(30, sum(DIMS), generator=generator, requires_grad=True)
    masks = torch.rand(30, sum(DIMS), generator=generator) < 0.5
    masks[:, [0, 3, 4, 9]] = True  # each dimension keeps one
    found = []
    for kind in (MaskableTierDistribution, MaskableMultiCategoricalDistribution):
        made = kind(DIMS).proba_distribution(logits)
        made.apply_masking(masks.numpy())
        torch.manual_seed(seed)
        drawn = made.sample()
        chosen = masks[:, [0, 3, 4, 9]].int() * 0  # always legal
        value = made.log_prob(chosen).sum() + 0.3 * made.entropy().sum()
        (gradient,) = torch.autograd.grad(value, logits)
        found.append((made.log_prob(chosen), made.entropy(), made.mode(), gradient))
        for d, (first, count) in enumerate(zip([0, 3, 4, 9], DIMS, strict=True)):
            legal = masks[:, first : first + count]
            assert legal.gather(1, drawn[:, d : d + 1]).all()
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [RecurrentTierPolicy, MaskableTierPolicy])
def test_other_policies_have_it_too(kind: type) -> None:
    space = spaces.Box(-1, 1, (4,))
    policy = kind(space, spaces.MultiDiscrete(DIMS), lambda _: 1e-3, net_arch=[8])
    assert isinstance(policy.action_dist, TierDistribution)
    action, _ = policy.predict(np.zeros((3, 4), np.float32), deterministic=True)
    assert action.shape == (3, len(DIMS))
    with pytest.raises(TypeError, match="expected a MultiDiscrete"):
        kind(space, spaces.Discrete(2), lambda _: 1e-3)
