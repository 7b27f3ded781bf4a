"""A trained controller from its exported folder: NumPy and safetensors alone, no pickles.

`write_controller` and `LearnedController.load` are the two ends of the format; `train/export.py`
only converts a trainer's tensors for it. A folder that differs from what was written is refused.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from engine.errors import UserError
from engine.protocol import Bools, Candidates, Controller, Limits, Outcome, Plan, View
from policies.action_mask import ActionMask
from policies.actions import ActionTable, PlanByClass
from policies.delegate import defined
from policies.features import Observation, observe, require_finite
from policies.manifest import FILE_NAME, PATHS, WEIGHTS_NAME, Manifest, parse_manifest
from policies.network import Network, check_tensors
from policies.request_encoder import RequestEncoder
from policies.request_features import observe_requests, require_finite_rows
from policies.shifts import Shifts


class LearnedController(Controller):
    """Features of the view, through the network, to an action that is held for a while.

    Who carries it out is the action table's `actor`: a plan by class is given to everybody, prices
    steer slack-priced.
    """

    BY_REQUEST: ClassVar[bool] = False
    """Whether requests are observed one by one."""
    features_of: Callable[[View, PlanByClass, Shifts], Observation] | None = None
    """Who computes the features in place of `policies.features.observe`, to the same last bit; in
    our engine `policies.compiled_features`, which needs Numba."""

    def __init__(self, manifest: Manifest, weights: Mapping[str, NDArray[np.float32]]) -> None:
        """`weights` named as in NetworkShape.tensor_shapes. Raises UserError when they misfit."""
        self.manifest = manifest
        self.name = manifest.name
        self._actor = manifest.actions.actor()
        if not set(defined(self._actor)) <= set(defined(self)):
            raise TypeError(f"{type(self).__name__} does not carry out {manifest.actions.kind}")
        if (manifest.requests is not None) is not self.BY_REQUEST:
            raise TypeError(f"{type(self).__name__} does not observe what {manifest.name} does")
        self.lossless, self.needs_profile = manifest.actions.lossless, self._actor.needs_profile
        check_tensors(manifest.tensor_shapes(), weights)
        own = {name: weights[name] for name in manifest.network.tensor_shapes()}
        self.network = Network(manifest.network, own, manifest.codec, manifest.normaliser)
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
            return cls.kind_of(manifest)(manifest, weights)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from error
        except (OSError, UnicodeDecodeError, safetensors.SafetensorError) as error:
            raise UserError(
                f"{folder}: no readable controller ({error}); expected {FILE_NAME} and "
                f"{WEIGHTS_NAME}, as export writes them"
            ) from error

    @classmethod
    def kind_of(cls, manifest: Manifest) -> type[LearnedController]:
        """Who carries out what the manifest says."""
        if manifest.requests is not None:
            return LearnedByRequest
        if manifest.observation == PATHS:
            from policies.learned_paths import LearnedPaths  # which is one of these

            return LearnedPaths
        return LearnedPrices if manifest.actions.kind == "prices" else LearnedController

    def reset(self, limits: Limits) -> None:
        """Start as in training: nothing seen, nothing in force, a decision due at once."""
        table = self.manifest.actions
        if self.manifest.masked and isinstance(table, ActionTable):
            self.network.mask = ActionMask(table, self._features, limits)
        self.network.reset()
        self._actor.reset(limits)
        self._shifts = Shifts(len(table.class_names))
        self._held = 0

    def plan(self, view: View) -> Plan:
        """Decide when the last decision has stood for `hold` iterations, else keep it."""
        if self._held == 0:
            observation = self.observed(view)
            require_finite(observation, self._features)
            self._actor.decide(self.network.action(observation))
        self._held = (self._held + 1) % self.manifest.hold
        return self._actor.plan(view)

    def observed(self, view: View) -> Observation:
        """What the network is given of a view. Raises UserError for one that it does not know."""
        if view.class_names != self.manifest.actions.class_names:
            self.refuse_classes(view)
        return (self.features_of or observe)(view, self._actor.previous, self._shifts)

    def inputs(self, observation: Any) -> Observation:
        """What the network is given of an observation of the environment."""
        found: Observation = observation
        return found

    def refuse_classes(self, view: View) -> None:
        """Raise UserError: it was trained for other classes than the view's."""
        raise UserError(
            f"{self.name}: trained for the classes {', '.join(self.manifest.actions.class_names)}, "
            f"but the engine serves {', '.join(view.class_names)}; use the same class table"
        )

    def observe(self, outcome: Outcome) -> None:
        """Who carries actions out may learn from what came of them."""
        self._actor.observe(outcome)


class LearnedPrices(LearnedController):
    """Of prices: slack-priced selects the nodes, which no controller of plans is asked for."""

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools | None:
        """Slack-priced's nodes under the prices in force."""
        return self._actor.select(view, plan, candidates)


class LearnedByRequest(LearnedController):
    """Of policies that observe requests one by one: `policies.request_encoder` comes first."""

    BY_REQUEST = True

    def __init__(self, manifest: Manifest, weights: Mapping[str, NDArray[np.float32]]) -> None:
        """As of LearnedController."""
        super().__init__(manifest, weights)
        assert manifest.requests is not None
        self.encoder = RequestEncoder(manifest.requests, weights)

    def observed(self, view: View) -> Observation:
        """The features, and behind them what is made of the requests."""
        of_engine = super().observed(view)
        rows, mask = observe_requests(view)
        require_finite_rows(rows, self.manifest.request_features)
        return self.inputs({"engine": of_engine, "requests": rows, "mask": mask})

    def inputs(self, observation: Any) -> Observation:
        """Of `engine` [F], `requests` [S, K] and `mask` [S]."""
        summary = self.encoder.summary(observation["requests"], observation["mask"])
        return np.concatenate([observation["engine"], summary])


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
    check_tensors(manifest.tensor_shapes(), weights)
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
