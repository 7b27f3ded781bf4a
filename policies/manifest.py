"""The exported controller's manifest.json: what is in it, how it is written, when it is refused.

It says everything but the weights: what is observed, normaliser, network shape, action table, what
the network's outputs stand for in it (codec), hold, where it was trained, and a hash of every other
file. A digest over the manifest itself catches edits and damage (it is no signature). Tensors are
`policies.learned`'s.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from engine.errors import UserError
from policies.action_codec import ActionCodec, TierCodec, codec_from_dict
from policies.actions import Actions, ActionTable
from policies.features import Feature, feature_table, schema_hash
from policies.network import NetworkShape, Normaliser
from policies.path_features import path_table, trees_of
from policies.price_actions import PriceActions
from policies.request_encoder import RequestShape
from policies.request_features import request_table

FORMAT_VERSION = 2
FILE_NAME = "manifest.json"
WEIGHTS_NAME = "weights.safetensors"
HOST = "draftgym"
"""Whose view and plan the features and actions speak of; other engines get their own word."""
AGGREGATE, PATHS = "aggregate", "learning-to-draft"
"""What may be observed, by the names of `envs.observing`."""

_KEYS = (
    "format_version", "name", "host", "features", "feature_hash", "normaliser", "network",
    "actions", "codec", "hold", "training", "files", "digest",
)  # fmt: skip
REQUESTS = "requests"
"""The key that is there only of a policy that observes requests, so that others read as ever."""
_OPTIONAL = (REQUESTS, "observation")


@dataclass(frozen=True)
class Manifest:
    """A learned controller without its weights."""

    name: str
    network: NetworkShape
    codec: ActionCodec
    """What the network's outputs stand for, and the action table."""
    normaliser: Normaliser | None = None
    requests: RequestShape | None = None
    """What is made of each request beside the features, before the network; None: nothing."""
    hold: int = 1
    """Iterations for which a decision stands (the environment's decide_every)."""
    training: dict[str, Any] = field(default_factory=dict)
    """Figures and provenance, free in form, JSON types only."""
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 by file name; filled in by `policies.learned.write_controller`."""
    observation: str = AGGREGATE
    """What the network is given; written down where it is not the aggregate."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UserError(f"manifest: name is {self.name!r}; expected some text")
        if type(self.hold) is not int or self.hold < 1:
            raise UserError(
                f"manifest: hold is {self.hold!r}; expected a whole number of iterations, "
                "at least 1"
            )
        if self.masked and self.observation != AGGREGATE:
            raise UserError(
                f"manifest: rules out tiers, but observes {self.observation}; masks are worked out "
                f"from the observation {AGGREGATE}"
            )
        inputs, outputs = self.network.layers[0], self.network.layers[-1]
        self._check_inputs(inputs)
        if outputs != self.codec.outputs:
            raise UserError(
                f"manifest: the network has {outputs} outputs; expected {self.codec.outputs} for "
                f"actions of kind {self.codec.kind}"
            )
        if self.normaliser is not None and len(self.normaliser.mean) != inputs:
            raise UserError(
                f"manifest: the normaliser has {len(self.normaliser.mean)} entries; expected "
                f"{inputs}, one for each feature"
            )

    def _check_inputs(self, inputs: int) -> None:
        """Raise UserError unless the network takes the features, and what is made of requests."""
        features, summary = len(self.features), 0
        if self.requests is not None:
            self._check_requests(self.requests)
            summary = self.requests.outputs(len(self.class_names))
        if inputs != features + summary:
            of_requests = f" and {summary} of requests" if summary else ""
            raise UserError(
                f"manifest: the network takes {inputs} inputs; expected {features + summary}, "
                f"one for each feature{of_requests}"
            )

    def _check_requests(self, requests: RequestShape) -> None:
        """Raise UserError where rows have another width, or the policy is none that sees them."""
        if requests.layers[0] != len(self.request_features):
            raise UserError(
                f"manifest: the encoder takes rows of {requests.layers[0]}; expected "
                f"{len(self.request_features)}, one for each feature of a request"
            )
        plain = isinstance(self.codec, TierCodec) and isinstance(self.actions, ActionTable)
        if not plain or self.masked or self.network.lstm or self.normaliser is not None:
            raise UserError(
                "manifest: requests are observed by policies over tiers alone, without masks, LSTM "
                "and normaliser"
            )

    @property
    def actions(self) -> Actions:
        """The tiers that are chosen from."""
        return self.codec.table

    @property
    def class_names(self) -> tuple[str, ...]:
        """SLO classes in the order of features and actions."""
        return self.actions.class_names

    @property
    def masked(self) -> bool:
        """Whether tiers without use are ruled out before the choice (`policies.action_mask`)."""
        return isinstance(self.codec, TierCodec) and self.codec.masked

    @property
    def features(self) -> tuple[Feature, ...]:
        """Features in the order of the network's inputs. Raises UserError where there are none."""
        return observed_features(self.observation, self.actions)

    @property
    def request_features(self) -> tuple[Feature, ...]:
        """Features of a request in the order of its row."""
        return request_table(self.class_names)

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor."""
        of_requests = {} if self.requests is None else self.requests.tensor_shapes()
        return of_requests | self.network.tensor_shapes()

    def to_json(self) -> str:
        """The file's text, digest included."""
        values: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "host": HOST,
            "features": [f._asdict() for f in self.features],
            "feature_hash": schema_hash(self.features),
            "normaliser": None if self.normaliser is None else asdict(self.normaliser),
            "network": asdict(self.network),
            "actions": self.actions.to_dict(),
            "codec": self.codec.to_dict(),
            "hold": self.hold,
            "training": self.training,
            "files": self.files,
        }
        if self.requests is not None:
            values[REQUESTS] = {
                "features": [f._asdict() for f in self.request_features],
                "feature_hash": schema_hash(self.request_features),
                **asdict(self.requests),
            }
        if self.observation != AGGREGATE:  # it was once the only one
            values["observation"] = self.observation
        try:
            values["digest"] = _digest(values)
            return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        except (TypeError, ValueError) as error:
            raise UserError(
                f"manifest: cannot be written as JSON ({error}); training figures must be finite "
                "numbers, text, lists or tables"
            ) from error


def parse_manifest(text: str) -> Manifest:
    """The manifest that `text` holds. Raises UserError, one sentence, when it must be refused."""
    try:
        values = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UserError(f"manifest: not JSON ({error}); export the controller again") from error
    if not isinstance(values, dict):
        raise UserError("manifest: expected a table; export the controller again")
    version = values.get("format_version")
    if version != FORMAT_VERSION or type(version) is not int:
        raise UserError(
            f"manifest: format version {version!r}; this DraftGym reads version {FORMAT_VERSION}, "
            "so export the controller with it again"
        )
    _check_keys("manifest", values, _KEYS, _OPTIONAL)
    stated = values.pop("digest")
    if stated != _digest(values):
        raise UserError(
            "manifest: the text does not match its own digest, so it was changed or damaged; "
            "export the controller again"
        )
    if values["host"] != HOST:
        raise UserError(f"manifest: made for host {values['host']!r}; expected {HOST!r}")
    return _manifest_of(values)


def _manifest_of(values: dict[str, Any]) -> Manifest:
    """Build and cross-check the manifest from tables whose outer keys are right."""
    actions = _actions_of(values["actions"])
    observation = values.get("observation", AGGREGATE)
    _check_features("features", values, observed_features(observation, actions))
    network = values["network"]
    _check_keys("manifest: network", network, ("layers", "activation", "lstm"))
    normaliser = values["normaliser"]
    if normaliser is not None:
        _check_keys("manifest: normaliser", normaliser, ("mean", "var", "clip", "epsilon"))
    for where, lists in (
        ("layers", network["layers"]),
        *(() if normaliser is None else (("mean", normaliser["mean"]), ("var", normaliser["var"]))),
    ):
        if not isinstance(lists, list) or not all(type(v) in (int, float) for v in lists):
            raise UserError(f"manifest: {where} is no list of numbers")
    if normaliser is not None and not all(
        type(normaliser[key]) in (int, float) for key in ("clip", "epsilon")
    ):
        raise UserError("manifest: the normaliser's clip and epsilon are no numbers")
    return Manifest(
        name=values["name"],
        network=NetworkShape(tuple(network["layers"]), network["activation"], network["lstm"]),
        codec=codec_from_dict(values["codec"], actions),
        normaliser=None
        if normaliser is None
        else Normaliser(
            tuple(normaliser["mean"]),
            tuple(normaliser["var"]),
            normaliser["clip"],
            normaliser["epsilon"],
        ),
        requests=_requests_of(values.get(REQUESTS), actions),
        hold=values["hold"],
        training=_table("training", values["training"]),
        files=_file_hashes(values["files"]),
        observation=observation,
    )


def _check_features(what: str, values: dict[str, Any], own: tuple[Feature, ...]) -> None:
    """Raise UserError unless the features that `values` list are our own."""
    stated, expected = values["feature_hash"], schema_hash(own)
    if stated != expected or values["features"] != [f._asdict() for f in own]:
        raise UserError(
            f"manifest: made for other {what} (hash {str(stated)[:12]}, this DraftGym's is "
            f"{expected[:12]}); train or export again with this version"
        )


def _requests_of(values: Any, actions: Actions) -> RequestShape | None:
    """How requests are encoded, if they are observed."""
    if values is None:
        return None
    _check_keys("manifest: requests", values, ("features", "feature_hash", "layers", "heads"))
    _check_features("features of requests", values, request_table(actions.class_names))
    if not isinstance(values["layers"], list):
        raise UserError("manifest: requests: layers is no list of numbers")
    return RequestShape(tuple(values["layers"]), values["heads"])


def observed_features(observation: Any, actions: Actions) -> tuple[Feature, ...]:
    """What is observed under a table of actions. Raises UserError for what nobody observes."""
    if observation == AGGREGATE:
        return feature_table(actions.class_names)
    if observation != PATHS:
        raise UserError(
            f"manifest: observation is {observation!r}; this DraftGym knows {AGGREGATE} and "
            f"{PATHS}, so export the controller with it again"
        )
    if not isinstance(actions, ActionTable) or len(actions.class_names) != 1:
        raise UserError(
            f"manifest: the observation {PATHS} is of one request, whatever its class; expected a "
            "table of plans of a single class"
        )
    return path_table(trees_of(actions))


def _actions_of(values: Any) -> Actions:
    """The table of actions. One of plans names no kind: it was once the only one."""
    if not isinstance(values, Mapping) or "kind" not in values:
        return ActionTable.from_dict(values)
    if values["kind"] != PriceActions.kind:
        raise UserError(
            f"manifest: actions of kind {values['kind']!r}; this DraftGym knows "
            f"{PriceActions.kind!r} and plans, so export the controller with it again"
        )
    return PriceActions.from_dict(values)


def _file_hashes(files: Any) -> dict[str, str]:
    """Checked `files`: plain names only, so that nothing outside the folder is ever read."""
    for name, value in _table("files", files).items():
        plain = name not in ("", ".", "..") and not set(name) & set("/\\:\0")
        if not plain or not isinstance(value, str):
            raise UserError(f"manifest: {name!r} under files is no file name with a SHA-256")
    if WEIGHTS_NAME not in files:
        raise UserError(f"manifest: no hash of {WEIGHTS_NAME}; export the controller again")
    return dict(files)


def _table(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"manifest: {key} is {type(value).__name__}; expected a table")
    return value


def _check_keys(
    where: str, values: Any, keys: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    if not isinstance(values, Mapping):
        raise UserError(f"{where} is {type(values).__name__}; expected a table")
    missing, unknown = sorted(set(keys) - set(values)), sorted({*values} - {*keys, *optional})
    if missing or unknown:
        what = f"{missing[0]} is missing" if missing else f"{unknown[0]} is unknown"
        raise UserError(f"{where}: key {what}; expected {', '.join(keys)}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _digest(values: dict[str, Any]) -> str:
    """SHA-256 of the canonical form of all keys but the digest."""
    canonical = json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
