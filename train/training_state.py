"""What training hangs on beside the model: from there a run on replay goes on bit for bit.

The environments with their episodes, every generator, and an LSTM's memory, taken between two
rollouts, when nothing else is under way. Weights, optimizer, counters and the last observation are
in the model's own zip; `train.saved_model` keeps both in one file.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates

from engine.snapshot_origin import Data, Snapshot, check_origin
from engine.snapshot_values import Carrier
from train.algorithms.base import Learner
from train.window import Watched

if TYPE_CHECKING:
    from train.environments import Environment

KIND = "Training"
VALUES = Carrier(left_out={}, records=(), rebuild={})
EPISODE_REWARDS = "rewards"
"""Of Stable-Baselines3's Monitor around a single environment: what its episode earned so far."""


def take(model: Learner, env: Environment) -> Snapshot:
    """The state between two rollouts. Raises UserError on a live engine."""
    state = {
        "env": env.snapshot()._asdict(),
        "generators": VALUES.pack(_generators(model), "generators"),
        "memory": VALUES.pack(_memory(model), "memory"),
        "earned": VALUES.pack(
            model.env.get_attr(EPISODE_REWARDS)  # type: ignore[union-attr]
            if isinstance(env, Watched)
            else None,
            "earned",
        ),
    }
    return Snapshot(KIND, {}, state)


def put_back(model: Learner, env: Environment, snapshot: Snapshot) -> None:
    """Go on as if nothing had happened since; `model` was loaded from the same moment.

    Raises UserError where anything else is served, or otherwise.
    """
    check_origin(snapshot, KIND, {})
    state, serving = snapshot.state, model.env
    assert serving is not None
    if isinstance(env, Watched):
        serving.reset()  # the wrappers around it ask for one; what it draws is replaced
        serving.set_attr(EPISODE_REWARDS, VALUES.unpack(state["earned"])[0])
    env.restore(Snapshot(**state["env"]))
    _remember(model, VALUES.unpack(state["memory"]))
    _set_generators(model, VALUES.unpack(state["generators"]))  # last: nothing draws after it


def _generators(model: Learner) -> dict[str, Any]:
    """Whatever Stable-Baselines3, torch and the algorithms here draw from."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state().numpy(),
        "actions": model.action_space.np_random,
    }


def _set_generators(model: Learner, states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(torch.from_numpy(states["torch"]))
    model.action_space.np_random.bit_generator.state = states["actions"].bit_generator.state


def _memory(model: Learner) -> Data:
    """[4] arrays: hidden and cell state of actor and critic; None without an LSTM."""
    states = getattr(model, "_last_lstm_states", None)
    return None if states is None else [t.numpy().copy() for pair in states for t in pair]


def _remember(model: Learner, memory: list[np.ndarray] | None) -> None:
    if memory is not None:
        hidden, cell, of_critic, cell_of_critic = (torch.from_numpy(array) for array in memory)
        states = RNNStates((hidden, cell), (of_critic, cell_of_critic))
        model._last_lstm_states = states  # type: ignore[attr-defined]
