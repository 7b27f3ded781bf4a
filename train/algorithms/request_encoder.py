"""The part of a network that looks at requests one by one, in torch, for `per-request`.

A features extractor of Stable-Baselines3: what it gives is the vector of the engine and behind it a
summary of each class's requests, and goes on to the usual layers of actor and critic, which share
it. What the summary is stands in its NumPy twin, `policies.request_encoder`, which is exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from policies.request_encoder import RequestShape
from policies.request_features import CLASS

LAYERS, HEADS = (32,), 4
"""Widths behind a request's row, and queries for each class (ours)."""


class RequestEncoder(BaseFeaturesExtractor):
    """Layers that all rows share, and attention over the rows of each class."""

    def __init__(
        self,
        observation_space: spaces.Dict,
        layers: Sequence[int],
        heads: int,
    ) -> None:
        """Of observations `per-request` of `envs.observing`."""
        engine, rows = observation_space["engine"].shape, observation_space["requests"].shape
        assert engine is not None and rows is not None
        features, classes = engine[0], rows[1] - CLASS
        self.shape = RequestShape((rows[1], *layers), heads)
        super().__init__(observation_space, features + self.shape.outputs(classes))
        widths = self.shape.layers
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        # It begins as the mean over a class; not a layer, or it would be drawn like one.
        self.queries = nn.Parameter(torch.zeros(heads, widths[-1]))

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """[B, F + C * H] of `engine` [B, F], `requests` [B, S, K] and `mask` [B, S]."""
        x, mask = observations["requests"], observations["mask"]
        members = (x[..., CLASS:] * mask[..., None] > 0)[..., None]  # [B, S, C, 1]
        for layer in self.layers:
            x = layer(x).relu()
        scores = (x @ self.queries.T)[:, :, None]  # [B, S, 1, heads]
        scores = scores.masked_fill(~members, -torch.inf)
        highest = scores.detach().amax(1, keepdim=True).clamp_min(-1e30)  # -inf: nobody is there
        weights = (scores - highest).exp()
        weights = weights / weights.sum(1, keepdim=True).clamp_min(1.0)  # 0, or 1 and more
        by_head = x.unflatten(-1, (self.shape.heads, -1))
        summary = torch.einsum("bsch,bshd->bchd", weights, by_head)
        return torch.cat([observations["engine"], summary.flatten(1)], 1)


ENCODING = {
    "features_extractor_class": RequestEncoder,
    # Said in full, so that a run keeps its sizes when ours change.
    "features_extractor_kwargs": {"layers": LAYERS, "heads": HEADS},
}
"""What `policy_kwargs` say more where requests are observed."""
