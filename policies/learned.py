"""A trained controller from its exported folder: NumPy and safetensors alone, no pickles.

`write_controller` and `LearnedController.load` are the two ends of the format; `train/export.py`
only converts a trainer's tensors for it. A folder that differs from what was written is refused.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from engine.errors import UserError
from engine.protocol import Controller, Limits, Plan, View
from policies.action_mask import ActionMask
from policies.features import observe, require_finite
from policies.manifest import FILE_NAME, WEIGHTS_NAME, Manifest, parse_manifest
from policies.network import Network, check_tensors


class LearnedController(Controller):
    """Features of the view, through the network, to a plan by class that is held for a while."""

    def __init__(self, manifest: Manifest, weights: Mapping[str, NDArray[np.float32]]) -> None:
        """`weights` named as in NetworkShape.tensor_shapes. Raises UserError when they misfit."""
        self.manifest = manifest
        self.name = manifest.name
        self.lossless = manifest.actions.lossless
        self.network = Network(manifest.network, weights, manifest.codec, manifest.normaliser)
        self._features = manifest.features
        self.reset(Limits())

    @classmethod
    def load(cls, folder: str | Path) -> LearnedController:
        """The controller exported to `folder`. Raises UserError when anything is not as written."""
        folder = Path(folder)
        try:
            manifest = parse_manifest((folder / FILE_NAME).read_text(encoding="utf-8"))
            contents = {name: (folder / name).read_bytes() for name in manifest.files}
            for name, content in contents.items():
                if hashlib.sha256(content).hexdigest() != manifest.files[name]:
                    raise UserError(
                        f"{name} does not match its SHA-256 in the manifest, so it was changed or "
                        "damaged; export the controller again"
                    )
            weights = safetensors.numpy.load(contents[WEIGHTS_NAME])
            return cls(manifest, weights)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from error
        except (OSError, UnicodeDecodeError, safetensors.SafetensorError) as error:
            raise UserError(
                f"{folder}: no readable controller ({error}); expected {FILE_NAME} and "
                f"{WEIGHTS_NAME}, as export writes them"
            ) from error

    def reset(self, limits: Limits) -> None:
        """Start as in training: nothing seen, no plan in force, a decision due at once."""
        manifest = self.manifest
        if manifest.masked:
            self.network.mask = ActionMask(manifest.actions, self._features, limits)
        self.network.reset()
        self._previous = manifest.actions.off()
        self._held = 0

    def plan(self, view: View) -> Plan:
        """Decide when the last decision has stood for `hold` iterations, else keep it."""
        table = self.manifest.actions
        if self._held == 0:
            if view.class_names != table.class_names:
                raise UserError(
                    f"{self.name}: trained for the classes {', '.join(table.class_names)}, but the "
                    f"engine serves {', '.join(view.class_names)}; use the same class table"
                )
            observation = observe(view, self._previous)
            require_finite(observation, self._features)
            self._previous = table.decode(self.network.action(observation))
        self._held = (self._held + 1) % self.manifest.hold
        return table.expand(self._previous, view)


def write_controller(
    folder: str | Path,
    weights: Mapping[str, NDArray[np.float32]],
    manifest: Manifest,
    extra_files: Mapping[str, bytes] | None = None,
) -> Manifest:
    """Write an exported controller at once or not at all; returns the manifest with its hashes.

    `extra_files` (a card, policy.onnx) are hashed too. An exported controller that stands there is
    replaced; any other folder with something in it is refused. Raises UserError.
    """
    folder = Path(folder)
    check_tensors(manifest.network, weights)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file; name a folder for the controller")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / FILE_NAME).is_file():
        raise UserError(f"{folder}: holds something else already; name a new folder")
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in weights.items()}
    contents = {WEIGHTS_NAME: safetensors.numpy.save(tensors), **(extra_files or {})}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    complete = replace(manifest, files=hashes)
    contents[FILE_NAME] = complete.to_json().encode()
    parse_manifest(contents[FILE_NAME].decode())  # never write what `load` would refuse
    try:
        _write_folder(folder, contents)
    except OSError as error:
        raise UserError(
            f"{folder}: the controller cannot be written ({error.strerror or error}); nothing was "
            "left behind, so free some space or name another folder"
        ) from error
    return complete


def _write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Fill a temporary sibling, then rename it into place."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        fresh.chmod(0o755)
        for name, content in contents.items():
            with (fresh / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        if folder.is_dir() and any(folder.iterdir()):
            # A rename cannot replace a filled folder: move the old one aside, back if it fails.
            aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
            os.replace(folder, aside)
            try:
                os.replace(fresh, folder)
            except OSError:
                os.replace(aside, folder)
                raise
            shutil.rmtree(aside)
        else:
            os.replace(fresh, folder)
    finally:
        if fresh.is_dir():
            shutil.rmtree(fresh)
