"""A model on disk: one zip, with the replay buffer of an algorithm that has one.

Stable-Baselines3's zip holds pickles, so it is read only from runs that this program made; what
leaves a run folder is `train.export`'s. The buffer lies in it as plain arrays, and so does the
state from which training goes on bit for bit (`train.training_state`): model and state are written
in one piece, so they can never be of different moments.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import snapshot_file
from engine.atomic_write import write_atomic
from engine.errors import UserError
from engine.snapshot_origin import Snapshot
from train.algorithms.arguments import Arguments
from train.algorithms.base import Learner
from train.algorithms.registry import Algorithm

if TYPE_CHECKING:
    from train.algorithms.timing import TimedReplayBuffer
    from train.environments import Trainable

EXPERIENCE = "experience.npz"
STATE = "state.npz"
ARRAYS = (
    "observations", "next_observations", "actions", "rewards", "dones", "timeouts", "elapsed_s",
)  # fmt: skip


def save_model(
    model: Learner, path: Path, experience: bool = True, state: Snapshot | None = None
) -> None:
    """Write the model's zip whole or not at all; without `experience`, to act alone.

    `state` is what `train.training_state.take` gave at this moment.
    """
    content = io.BytesIO()
    model.save(content)
    buffer = getattr(model, "replay_buffer", None)
    with zipfile.ZipFile(content, "a") as archive:
        if experience and buffer is not None:
            archive.writestr(EXPERIENCE, _experience(buffer))
        if state is not None:
            archive.writestr(STATE, _bytes_of(state))
    write_atomic(path, content.getvalue())


def load_state(path: Path) -> Snapshot:
    """The state that a model was saved with. Raises UserError where there is none of this version.

    `path` is a zip that `load_model` has read.
    """
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
        if STATE not in archive.namelist():
            raise UserError(
                f"{path} holds no state of its episodes, so training cannot go on from there; "
                "train anew"
            )
        return snapshot_file.load(Path(archive.extract(STATE, folder)))


def load_model(
    path: Path,
    algorithm: Algorithm,
    env: Trainable | None = None,
    arguments: Arguments | None = None,
    gamma: float | None = None,
    within_episodes: bool = False,
    experience: bool = True,
) -> Learner:
    """Read a model that this program saved (the file may run code). Raises UserError.

    With an environment to go on in, `arguments` and `gamma` (per second) replace those that it was
    saved with, all but the network's. The environment is reset before training, unless
    `within_episodes` says that it will be put back to where the model last saw it. Without
    `experience` a replay buffer begins empty.
    """
    if not path.is_file():
        raise UserError(f"{path}: nothing was saved there yet; train for longer, or anew")
    n_envs = getattr(env, "num_envs", 1)
    changed: dict[str, Any] = {} if arguments is None else arguments.of(n_envs)
    if gamma is not None:
        changed["gamma"] = gamma
    try:
        model = algorithm.make.load(
            path, env=env, device="cpu", force_reset=not within_episodes, **changed
        )
        has_buffer = getattr(model, "replay_buffer", None) is not None
        if env is not None and experience and has_buffer:
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


def _bytes_of(state: Snapshot) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / STATE
        snapshot_file.save(state, path)
        return path.read_bytes()


def _put_back(model: Learner, path: Path) -> None:
    """Fill the replay buffer from the zip, to the entry as it was: samples go by the entry.

    Where its size changed, with the latest that fit, oldest first.
    """
    buffer: TimedReplayBuffer = model.replay_buffer  # type: ignore[attr-defined]
    with zipfile.ZipFile(path) as archive:
        found = np.load(io.BytesIO(archive.read(EXPERIENCE)), allow_pickle=False)
    pos, full = int(found["pos"]), bool(found["full"])
    same_size = full and len(found[ARRAYS[0]]) == buffer.buffer_size
    count = 0
    for name in ARRAYS:
        own, saved = getattr(buffer, name), found[name]
        if saved.shape[1:] != own.shape[1:]:
            raise ValueError(f"{name} of shape {saved.shape}; expected [steps, *{own.shape[1:]}]")
        if full and not same_size:  # oldest first
            saved = np.roll(saved, -pos, axis=0)
        count = min(len(saved), len(own))
        own[:count] = saved[len(saved) - count :]
    buffer.full = count == buffer.buffer_size
    buffer.pos = pos if same_size else count % buffer.buffer_size
