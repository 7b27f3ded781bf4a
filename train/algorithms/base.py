"""What every algorithm here has beside Stable-Baselines3's own.

A `Learner` stands before Stable-Baselines3's class in the bases of each algorithm: what a run must
remember, how far training is, which layers act (for export) and how to start with small trees
and batches.
What time does to rewards is `train.algorithms.timing`'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import nn

from engine.protocol import Ints
from policies.action_codec import ActionCodec
from policies.actions import Actions
from train.algorithms.request_encoder import RequestEncoder

CALM = 1.5  # in logits: the neutral tier of a price is e^1.5 times as likely as any other at first
CAUTION = 0.7  # in logits: of two neighbouring tiers the smaller is e^0.7 times as likely at first


class Acting(NamedTuple):
    """The half of a model that acts: perhaps an LSTM, then linear layers, activated but the last.

    The last gives what the codec chooses by: logits, values, or inverse tanh.
    """

    layers: tuple[nn.Linear, ...]
    activation: type[nn.Module]
    lstm: nn.LSTM | None = None
    encoder: RequestEncoder | None = None
    """Before all of them, where requests are observed one by one."""


class Learner(BaseAlgorithm):
    """Saved and loaded with the model: all of it but the replay buffer."""

    POLICY: ClassVar[str | type] = "MlpPolicy"
    FIXED: ClassVar[dict[str, Any]] = {}
    """Arguments that make it discount by time, which nobody may set."""

    codec: ActionCodec
    trained_s: float = 0.0
    best_reward: float = -math.inf
    imitated: str | None = None
    """The controller that it was fitted to before training, as it was typed."""
    tuned_from: int | None = None
    """Its decisions on replay, after which it went on on a live engine; None: it did not."""
    updates: int = 0
    """Times that it learned from what it had collected."""
    share_done: float = 0.0
    """How much of training is behind, from 0 to 1; schedules go by it."""

    def train(self, *args: Any, **options: Any) -> None:
        """Learn from what was collected."""
        super().train(*args, **options)  # type: ignore[misc]
        self.updates += 1

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        # Stable-Baselines3 counts decisions to an end that a training by time does not know.
        self._current_progress_remaining = 1.0 - self.share_done

    def first_update(self) -> tuple[int, str]:
        """Decisions before the first update, and the setting that says so."""
        raise NotImplementedError

    def acting(self) -> Acting:
        """The layers that choose deterministic actions; they share their weights with the model."""
        raise NotImplementedError

    def start_small(self) -> None:
        """Bias the untrained policy to small trees and batches, one that sets prices to neutral
        ones.

        One that starts with all of them alike builds a queue in its first minute that it cannot
        get rid of, and never sees a request served in time.
        """
        raise NotImplementedError

    def greedy(self, observations: Iterable[Any], legal: Any = None) -> NDArray[Any]:
        """Deterministic actions [T, R, …] of R episodes side by side.

        `observations` has T of R each, as the environment shows them; `legal` [T, R, Σ nvec] is for
        an algorithm with masks.
        """
        return np.stack([self.predict(rows, deterministic=True)[0] for rows in observations])


def first_tiers(table: Actions) -> Ints:
    """[D] where an untrained policy begins: with neutral prices; of plans with the smallest tiers.

    With few requests at once, too: objectives are then met from the start. One that begins with
    every slot taken meets none and has little to learn from; of five trainings some never found
    that fewer at once are served in time.
    """
    return table.neutral if table.kind == "prices" else np.zeros_like(table.neutral)


def first_biases(table: Actions) -> NDArray[Any]:
    """By how much the logits [Σ nvec] of an untrained policy lie below those of its first tiers.

    Of plans, the further the lower. Of prices, all alike: what is best may be far from neutral, and
    a policy that starts with slack-priced can afford to try it.
    """
    by_entry = zip(table.nvec, first_tiers(table), strict=True)
    away = np.concatenate([np.abs(np.arange(n) - first) for n, first in by_entry])
    return CALM * (away > 0) if table.kind == "prices" else CAUTION * away


def lower_bias(layer: nn.Module, by: NDArray[Any]) -> None:
    """Take `by` [outputs] from the layer's bias."""
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.bias.sub_(torch.from_numpy(np.asarray(by, dtype=np.float32)))


def linear(layers: nn.Module) -> tuple[nn.Linear, ...]:
    """The linear layers of a sequence, in order."""
    return tuple(layer for layer in layers.children() if isinstance(layer, nn.Linear))
