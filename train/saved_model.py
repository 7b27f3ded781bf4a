"""A model on disk: one zip, with the replay buffer of an algorithm that has one.

Stable-Baselines3's zip holds pickles, so it is read only from runs that this program made; what
leaves a run folder is `train.export`'s. The buffer lies in it as plain arrays.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.atomic_write import write_atomic
from engine.errors import UserError
from train.algorithms.arguments import Arguments
from train.algorithms.base import Learner
from train.algorithms.registry import Algorithm

if TYPE_CHECKING:
    from train.algorithms.timing import TimedReplayBuffer
    from train.learning import Environment

EXPERIENCE = "experience.npz"
ARRAYS = (
    "observations", "next_observations", "actions", "rewards", "dones", "timeouts", "elapsed_s",
)  # fmt: skip


def save_model(model: Learner, path: Path, experience: bool = True) -> None:
    """Write the model's zip whole or not at all; without `experience`, to act alone."""
    content = io.BytesIO()
    model.save(content)
    buffer = getattr(model, "replay_buffer", None)
    if experience and buffer is not None:
        with zipfile.ZipFile(content, "a") as archive:
            archive.writestr(EXPERIENCE, _experience(buffer))
    write_atomic(path, content.getvalue())


def load_model(
    path: Path,
    algorithm: Algorithm,
    env: Environment | None = None,
    arguments: Arguments | None = None,
    gamma: float | None = None,
) -> Learner:
    """Read a model that this program saved (the file may run code). Raises UserError.

    With an environment to go on in, `arguments` and `gamma` (per second) replace those that it was
    saved with, all but the network's.
    """
    if not path.is_file():
        raise UserError(f"{path}: nothing was saved there yet; train for longer, or anew")
    n_envs = getattr(env, "num_envs", 1)
    changed: dict[str, Any] = {} if arguments is None else arguments.of(n_envs)
    if gamma is not None:
        changed["gamma"] = gamma
    try:
        model = algorithm.make.load(path, env=env, device="cpu", **changed)
        if env is not None and getattr(model, "replay_buffer", None) is not None:
            _put_back(model, path)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        raise UserError(f"{path} is damaged, or of other settings ({error}); train anew") from error
    if env is not None and env.codec != model.codec:
        raise UserError(
            f"{path} was trained with another table of actions, so its outputs would stand for "
            "other plans; train anew"
        )
    for name, value in ({} if arguments is None else arguments.network()).items():
        if model.policy_kwargs.get(name, value) != value:
            raise UserError(
                f"--set policy_kwargs.{name}={value}: a run that is taken up keeps its network "
                f"({model.policy_kwargs[name]}); train anew"
            )
    return model


def _experience(buffer: TimedReplayBuffer) -> bytes:
    """The filled part of the buffer, and where it goes on."""
    filled = buffer.buffer_size if buffer.full else buffer.pos
    arrays = {name: getattr(buffer, name)[:filled] for name in ARRAYS}
    content = io.BytesIO()
    np.savez(content, pos=buffer.pos, full=buffer.full, **arrays)
    return content.getvalue()


def _put_back(model: Learner, path: Path) -> None:
    """Fill the replay buffer from the zip; where its size changed, with the latest that fit."""
    buffer: TimedReplayBuffer = model.replay_buffer  # type: ignore[attr-defined]
    with zipfile.ZipFile(path) as archive:
        found = np.load(io.BytesIO(archive.read(EXPERIENCE)), allow_pickle=False)
    pos, full = int(found["pos"]), bool(found["full"])
    count = 0
    for name in ARRAYS:
        own, saved = getattr(buffer, name), found[name]
        if saved.shape[1:] != own.shape[1:]:
            raise ValueError(f"{name} of shape {saved.shape}; expected [steps, *{own.shape[1:]}]")
        if full:  # oldest first
            saved = np.roll(saved, -pos, axis=0)
        count = min(len(saved), len(own))
        own[:count] = saved[len(saved) - count :]
    buffer.full = count == buffer.buffer_size
    buffer.pos = count % buffer.buffer_size
