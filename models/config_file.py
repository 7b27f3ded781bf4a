"""Reading the `config.json` of a model folder, with errors that say what is wrong with it.

What the keys mean is left to `models.decoder_config` and `models.head_config`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from models.errors import UserError


def read_config(folder: Path, kind: str) -> dict[str, Any]:
    """`config.json` of a folder that should hold a `kind`; raises UserError when it is none."""
    try:
        raw = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder}: no {kind} ({error}); expected a folder with config.json and weights in "
            "safetensors"
        ) from error
    if not isinstance(raw, dict):
        raise UserError(
            f"{folder}/config.json holds a {type(raw).__name__}, expected an object of keys and "
            f"values; give the folder of a {kind}"
        )
    return raw


def require_keys(folder: Path, raw: Mapping[str, Any], names: Iterable[str], kind: str) -> None:
    """Raises UserError that lists every key of `names` that `raw` does not state."""
    if missing := [name for name in names if raw.get(name) is None]:
        raise UserError(
            f"{folder}/config.json lacks {', '.join(missing)}; expected the complete config.json "
            f"of a {kind}"
        )


def require_served(folder: Path, stated: Iterable[tuple[str, Any, Any]]) -> None:
    """Raises UserError for the first (name, value, served value) whose value is not served."""
    for name, value, served in stated:
        if value != served:
            raise UserError(f"{folder}: {name} is {value!r}, only {served!r} is served yet")
