"""What an algorithm is made with: its YAML file, the sections of it that fit, then `--set`.

Sections are merged in the order of `sections_of`, special ones over general ones. Keys are
Stable-Baselines3's argument names. Two are ours: `n_envs`, engines that are stepped at once, and
`presets`, whether classes choose apart. What makes an algorithm discount by time is not for
setting. A run keeps its resolved arguments in `hyperparameters.yaml`, from which it resumes.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]

from engine.classes import ClassTable
from engine.errors import UserError
from policies.action_codec import ActionCodec
from policies.actions import Actions
from train.algorithms.registry import ALGORITHMS, Algorithm
from train.algorithms.schedules import schedule
from train.algorithms.values import Loader, check_kind, read_assignment
from train.command_line import nearest

if TYPE_CHECKING:
    from train.config import TrainConfig

FOLDER = Path(__file__).resolve().parents[1] / "hyperparameters"
RUN_FILE = "hyperparameters.yaml"
NETWORK = "policy_kwargs"
OURS: dict[str, Any] = {"n_envs": 1, "presets": "global"}
PRESETS = ("strict-and-rest", "global")
SCHEDULES = ("learning_rate", "clip_range")
ACTIVATIONS = ("tanh", "relu")
# Of a policy's arguments those that an exported controller can follow.
NETWORK_KEYS = (
    "net_arch", "activation_fn", "ortho_init", "n_quantiles", "n_critics", "lstm_hidden_size",
    "enable_critic_lstm",
)  # fmt: skip
# Said elsewhere, or needed as they are for the discount by time, for saving and for export.
NOT_FOR_SETTING = {
    "self", "policy", "env", "verbose", "device", "tensorboard_log", "action_noise",
    "rollout_buffer_class", "rollout_buffer_kwargs", "replay_buffer_class", "replay_buffer_kwargs",
    "optimize_memory_usage", "use_sde", "sde_sample_freq", "use_sde_at_warmup",
    "_init_setup_model", NETWORK,
}  # fmt: skip
ELSEWHERE = {"gamma": "--half-life-s", "seed": "--seed"}


@dataclass(frozen=True)
class Arguments:
    """An algorithm and its arguments by Stable-Baselines3's names, `policy_kwargs` nested."""

    algorithm: Algorithm
    values: Mapping[str, Any]

    @property
    def n_envs(self) -> int:
        """Engines that are stepped at once where the server can do so."""
        return int(self.values.get("n_envs", OURS["n_envs"]))

    def codec(self, table: Actions, classes: ClassTable) -> ActionCodec:
        """What the algorithm's actions stand for in `table`, whose classes are `classes`."""
        groups = [classes.names]
        if self.values.get("presets") == "strict-and-rest" and len(classes.names) > 1:
            strict = min(classes.classes, key=lambda c: c.tpot_ratio).name
            groups = [(strict,), tuple(name for name in classes.names if name != strict)]
        return self.algorithm.codec(table, groups)

    def of(self, n_envs: int) -> dict[str, Any]:
        """Keyword arguments for so many environments, without `policy_kwargs`."""
        given = {k: v for k, v in self.values.items() if k not in (*OURS, NETWORK)}
        if "n_epochs" in given:  # a batch is part of a rollout
            given["batch_size"] = min(given["batch_size"], given["n_steps"] * n_envs)
        return given | {k: schedule(given[k]) for k in SCHEDULES if k in given}

    def network(self) -> dict[str, Any]:
        """`policy_kwargs`, activations by their class."""
        from torch import nn

        given = dict(self.values.get(NETWORK, {}))
        if "activation_fn" in given:
            given["activation_fn"] = {"tanh": nn.Tanh, "relu": nn.ReLU}[given["activation_fn"]]
        return given

    def as_yaml(self) -> str:
        """The file that a run keeps."""
        content = {"algorithm": self.algorithm.name, "default": dict(self.values)}
        return str(yaml.safe_dump(content, sort_keys=False))


def arguments_of(config: TrainConfig) -> Arguments:
    """Those of a new run, or of one that is taken up, with `--set` on top. Raises UserError."""
    name = config.learning.policy
    algorithm, path = ALGORITHMS[name], FOLDER / f"{name}.yaml"
    if config.resume is not None and (config.resume / RUN_FILE).is_file():
        path = config.resume / RUN_FILE
    sections = _read(path)
    if (found := sections.pop("algorithm", name)) != name:
        raise UserError(
            f"--policy {name}: {config.resume} is a run of another algorithm, {found}; leave "
            "--policy out, or train anew"
        )
    values: dict[str, Any] = {}
    for section in sections_of(config):
        values = _merged(values, sections.get(section) or {})
    assignments = dict(read_assignment(text) for text in config.learning.set)
    if assignments:
        known = _known(algorithm, values)
        for key, value in assignments.items():
            _check_key(key, algorithm.name, known)
            _check_value(f"--set {key}={value}", key, value, known[key])
            if path.name == RUN_FILE:
                _check_kept(key, value, values, algorithm)
            outer, _, inner = key.rpartition(".")
            values = _merged(values, {outer: {inner: value}} if outer else {key: value})
    arguments = Arguments(algorithm, values)
    _check_together(arguments)
    return arguments


def sections_of(config: TrainConfig) -> list[str]:
    """Of a YAML file, in the order in which they are merged."""
    backend, kind, work = config.serving.backend, config.learning.kind, config.serving.workload
    named = ["default", backend, f"{backend}-{kind}", f"{backend}-{work}"]
    return named if config.preset is None else [*named, config.preset]


def fine_tuning_arguments(arguments: Arguments, config: TrainConfig) -> Arguments:
    """Those with which a policy that was trained on replay goes on on one live engine.

    How much is gathered for an update is the file's section `live`, where --set says nothing;
    schedules run anew, and exploration stays where training leaves it. Raises UserError.
    """
    name, values = arguments.algorithm.name, {**arguments.values, "n_envs": 1}
    given = {read_assignment(text)[0] for text in config.learning.set}
    of_live = _read(FOLDER / f"{name}.yaml").get("live") or {}
    values |= {key: value for key, value in of_live.items() if key not in (*given, NETWORK)}
    if "exploration_final_eps" in values:
        values["exploration_initial_eps"] = values["exploration_final_eps"]
    if "batch_size" in values and "n_steps" in values:
        rollout = values["n_steps"]
        batch = min(values["batch_size"], rollout)
        values["batch_size"] = batch if rollout % batch == 0 else rollout
    tuned = Arguments(arguments.algorithm, values)
    _check_together(tuned)
    return tuned


def _read(path: Path) -> dict[str, Any]:
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: expected sections such as `default:`")
    return found


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, tables key by key."""
    both = dict(below)
    for key, value in above.items():
        inner = isinstance(value, Mapping) and isinstance(both.get(key), Mapping)
        both[key] = _merged(both[key], value) if inner else value
    return both


def _known(algorithm: Algorithm, values: Mapping[str, Any]) -> dict[str, Any]:
    """Every key that may be set, with the value that tells its kind: ours, else the library's."""
    theirs = algorithm.theirs
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(theirs).parameters.items()
        if name not in NOT_FOR_SETTING and name not in ELSEWHERE
    }
    if algorithm.is_off_policy:
        defaults.pop("n_steps", None)  # its returns over several steps know no time
    policy = inspect.signature(theirs.policy_aliases[algorithm.policy_alias]).parameters
    known = {name: policy[name].default for name in NETWORK_KEYS if name in policy}
    known |= values.get(NETWORK, {})
    ours = {k: v for k, v in OURS.items() if k == "n_envs" or algorithm.acts_on == "presets"}
    plain = {k: v for k, v in values.items() if k != NETWORK}
    return defaults | ours | plain | {f"{NETWORK}.{k}": v for k, v in known.items()}


def _check_key(key: str, name: str, known: Mapping[str, Any]) -> None:
    if key in known:
        return
    if key in ELSEWHERE:
        raise UserError(f"--set {key}: is not set here; give {ELSEWHERE[key]}")
    raise UserError(f"--set {key}: {name} has no setting of that name; {nearest(key, list(known))}")


def _check_value(said: str, key: str, value: Any, like: Any) -> None:
    if key == "presets":
        if value not in PRESETS:
            raise UserError(f"{said}: expected {' or '.join(PRESETS)}")
    elif key == f"{NETWORK}.activation_fn":
        if value not in ACTIVATIONS:
            raise UserError(f"{said}: expected {' or '.join(ACTIVATIONS)}")
    elif key == f"{NETWORK}.net_arch":
        nets = value if isinstance(value, dict) else {"": value}
        if not all(_are_widths(widths) for widths in nets.values()):
            raise UserError(f"{said}: expected widths of hidden layers, such as [64,64]")
    elif not (key in SCHEDULES and isinstance(value, str) and schedule(value) is not None):
        check_kind(said, key, value, 0.0 if key in SCHEDULES else like)


def _are_widths(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n > 0 for n in value)


def _check_kept(key: str, value: Any, before: Mapping[str, Any], algorithm: Algorithm) -> None:
    """Refuse what does not fit the saved model, before its folder is written to."""
    outer, _, inner = key.rpartition(".")
    kept = before.get(outer, {}).get(inner) if outer else {**OURS, **before}.get(key)
    if outer or key == "presets" or (key == "n_envs" and algorithm.is_off_policy):
        changes = value != kept
    else:  # an entropy weight that is learned has an optimizer
        changes = key == "ent_coef" and isinstance(value, str) != isinstance(kept, str)
    if changes:
        what = "network" if outer else key
        raise UserError(
            f"--set {key}={value}: a run that is taken up keeps its {what} "
            f"({'the default' if kept is None else kept}); leave it out, or train anew"
        )


def _check_together(arguments: Arguments) -> None:
    """What no key says alone."""
    values, n_envs = arguments.values, arguments.n_envs
    nets, able = values.get(NETWORK, {}).get("net_arch"), arguments.algorithm.nets
    if isinstance(nets, dict) and set(nets) != set(able):
        expected = f"or {{{': […], '.join(able)}: […]}}" if able else "for all of it"
        raise UserError(
            f"--set {NETWORK}.net_arch={nets}: expected widths of hidden layers, [64,64] {expected}"
        )
    if arguments.algorithm.is_off_policy:
        return
    rollout = values["n_steps"] * n_envs
    batch = min(values.get("batch_size", rollout), rollout)
    if rollout < 2 or batch < 1 or rollout % batch:
        raise UserError(
            f"--set n_steps={values['n_steps']} batch_size={batch}: a rollout of "
            f"{n_envs} engines has {rollout} decisions; expected at least 2, and a batch that "
            "divides them"
        )
