"""Which environment a run was trained in: what it observed and what its actions stood for.

A network is a table of numbers: with other features or actions it would compute all the same, and
mean nothing. So a run's folder says which they were, and another version refuses to go on with it.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from engine.errors import UserError
from policies.features import schema_hash
from policies.manifest import observed_features
from policies.request_features import request_table
from train.algorithms.registry import Kind
from train.task import task_of

FILE = "environment.json"
SHOWN = 12
REQUESTS = "requests"


def environment_version(
    kind: Kind = "tiers", preset: str | None = None, observation: str = "aggregate"
) -> dict[str, str]:
    """This DraftGym's: name, what is chosen, and hashes over features and actions.

    Where requests are observed, one over what each of them shows, too.
    """
    from envs import SERVE_ID

    task = task_of(kind, preset)
    actions = json.dumps(task.actions.to_dict(), sort_keys=True)
    by_request = observation == "per-request"
    return {
        "environment": SERVE_ID,
        "kind": kind,
        "features": schema_hash(observed_features(task.observation, task.actions)),
        "actions": sha256(actions.encode()).hexdigest(),
        **({REQUESTS: schema_hash(request_table(task.actions.class_names))} if by_request else {}),
        **({} if preset is None else {"preset": preset}),
    }


def observed_in(folder: Path) -> str:
    """What the run in `folder` observed. Raises OSError or ValueError where nothing says so."""
    found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return "per-request" if REQUESTS in found else "aggregate"


def check_taken_up(folder: Path, kind: Kind, observation: str) -> None:
    """Raise UserError unless the run in `folder` chose and observed the same.

    One that is of another version, or says nothing, is told by `check_environment`.
    """
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        kept = {"actions": found["kind"], "observation": observed_in(folder)}
    except (OSError, ValueError, KeyError, TypeError):
        return
    for option, asked in (("actions", kind), ("observation", observation)):
        if asked != kept[option]:
            raise UserError(
                f"--{option} {asked}: a run that is taken up keeps its {option} "
                f"({kept[option]}); leave it out, or train anew"
            )


def check_environment(folder: Path) -> None:
    """Raise UserError unless the run in `folder` was trained in this version."""
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        own = environment_version(found["kind"], found.get("preset"), observed_in(folder))
        different = [name for name in own if found[name] != own[name]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error}); train anew") from error
    if different:
        name = different[0]
        raise UserError(
            f"{folder}: of another version of the environment ({name}: {found[name][:SHOWN]} "
            f"there, {own[name][:SHOWN]} here), so its network means something else; go on with "
            "the version that made it, or train anew"
        )
