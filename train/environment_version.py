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
from train.algorithms.registry import Kind
from train.task import task_of

FILE = "environment.json"
SHOWN = 12


def environment_version(kind: Kind = "tiers", preset: str | None = None) -> dict[str, str]:
    """This DraftGym's: name, what is chosen, and hashes over features and actions."""
    from envs import SERVE_ID

    task = task_of(kind, preset)
    actions = json.dumps(task.actions.to_dict(), sort_keys=True)
    return {
        "environment": SERVE_ID,
        "kind": kind,
        "features": schema_hash(observed_features(task.observation, task.actions)),
        "actions": sha256(actions.encode()).hexdigest(),
        **({} if preset is None else {"preset": preset}),
    }


def check_environment(folder: Path) -> None:
    """Raise UserError unless the run in `folder` was trained in this version."""
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        own = environment_version(found["kind"], found.get("preset"))
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
