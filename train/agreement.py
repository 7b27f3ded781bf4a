"""Does an exported controller act as the policy that it came from? On many random observations.

What is compared is written and read by `train.export`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.protocol import Limits
from policies.action_mask import ActionMask
from policies.actions import ActionTable
from policies.features import Observation, bounds
from policies.learned import LearnedController
from policies.manifest import Manifest
from policies.request_features import CLASS, row_bounds
from train.algorithms.base import Learner

CHECKED = 1000
SEQUENCE = 20


@dataclass(frozen=True)
class Agreement:
    """How an exported controller compares with the policy it came from."""

    observations: int
    differing_actions: int
    largest_difference: float
    """Of the networks' outputs."""

    @property
    def holds(self) -> bool:
        """Equal actions on every observation."""
        return self.differing_actions == 0


def compare(
    model: Learner, controller: LearnedController, rng: np.random.Generator, count: int = CHECKED
) -> Agreement:
    """Deterministic choices of both on `count` random observations inside the features' bounds.

    Half of them have most features at a bound, where real ones often lie (an empty class). They are
    served as episodes of SEQUENCE decisions, since a recurrent policy remembers.
    """
    manifest, network = controller.manifest, controller.network
    shape = SEQUENCE, count // SEQUENCE
    observations: Any = _drawn(rng, *bounds(manifest.features), shape)
    table, legal = manifest.actions, None
    if manifest.masked and isinstance(table, ActionTable):
        legal = ActionMask(table, manifest.features, Limits()).legal(observations)
    if manifest.requests is not None:
        observations = {"engine": observations, **_drawn_requests(model, manifest, rng, shape)}
    steps = [_at(observations, step) for step in range(SEQUENCE)]
    theirs = [manifest.codec.decode(rows) for rows in model.greedy(steps, legal)]
    outputs, ours = [], []
    for episode in range(shape[1]):
        controller.reset(Limits())
        inputs = [controller.inputs(_at(observations, (s, episode))) for s in range(SEQUENCE)]
        outputs.append([network.outputs(x) for x in inputs])
        ours.append([network.choose(o, x) for o, x in zip(outputs[-1], inputs, strict=True)])
    wrong = (np.array(ours).swapaxes(0, 1) != np.stack(theirs)).any(axis=-1)
    gap = np.abs(np.array(outputs).swapaxes(0, 1) - policy_outputs(model, observations)).max()
    return Agreement(count, int(wrong.sum()), float(gap))


def policy_outputs(model: Learner, observations: Any) -> NDArray[np.float32]:
    """What the trainer's own layers give, [T, R, outputs] of observations of T steps of R episodes:
    [T, R, features], or by name where requests are observed.
    """
    acting = model.acting()
    with torch.no_grad():
        if acting.encoder is None:
            x = torch.as_tensor(observations, device=model.device)
        else:
            named = {name: torch.as_tensor(of).flatten(0, 1) for name, of in observations.items()}
            x = acting.encoder(named).unflatten(0, observations["mask"].shape[:2])
        if acting.lstm is not None:
            x, _ = acting.lstm(x)
        for layer in acting.layers[:-1]:
            x = acting.activation()(layer(x))
        return np.asarray(acting.layers[-1](x).cpu(), np.float32)


def _drawn(
    rng: np.random.Generator, low: Observation, high: Observation, shape: tuple[int, ...]
) -> Observation:
    """Float32 [*shape, *low.shape] within the bounds, every other one mostly at them."""
    within = rng.uniform(low, high, (*shape, *low.shape))
    at_bound = rng.random(within.shape) < 0.7
    at_bound.reshape(-1, *low.shape)[::2] = False
    edges = np.where(rng.random(within.shape) < 0.5, low, high)
    return np.where(at_bound, edges, within).astype(np.float32)


def _drawn_requests(
    model: Learner, manifest: Manifest, rng: np.random.Generator, shape: tuple[int, int]
) -> dict[str, Observation]:
    """Rows and mask of the trained policy's slots, few of them taken or many.

    Rows of free slots are not 0 here: nobody may look at them.
    """
    slots = model.observation_space["mask"].shape[0]  # type: ignore[index]
    rows = _drawn(rng, *row_bounds(manifest.request_features, slots), shape)
    classes = rng.integers(len(manifest.class_names), size=rows.shape[:-1])
    rows[..., CLASS:] = np.eye(len(manifest.class_names), dtype=np.float32)[classes]
    taken = rng.random((*shape, slots)) < rng.random((*shape, 1))
    return {"requests": rows, "mask": taken.astype(np.float32)}


def _at(observations: Any, index: Any) -> Any:
    """One of many observations, which may be arrays by name."""
    if isinstance(observations, dict):
        return {name: of[index] for name, of in observations.items()}
    return observations[index]
