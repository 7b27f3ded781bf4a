"""What lies in a results folder: a plain comparison, the parts that were run, fidelity beside them.

Reading and refusing only; what each says is the sections' business.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import UserError
from eval.parts import PARTS, read_summary, refuse_mixed

Data = dict[str, Any]
PLAIN, FIDELITY = "results", "fidelity"


@dataclass(frozen=True)
class Found:
    """The summaries of a folder by name, those that were there."""

    folder: Path
    by_name: dict[str, Data]

    def get(self, name: str) -> Data | None:
        """The summary of a part, None where it was not run."""
        return self.by_name.get(name)


def read_folder(folder: Path) -> Found:
    """All that a report can show. Raises UserError.

    Refused are a folder without results, an unfinished part, and parts that different versions
    made: their figures are not to be set side by side.
    """
    for begun in (*sorted(folder.glob("*.unfinished")), folder / "matrix.pieces"):
        if begun.is_dir():
            raise UserError(
                f"{folder} holds an unfinished run ({begun.name}): repeat its command, which goes "
                "on where it was cut, or delete that folder"
            )
    found = {name: read_summary(folder / f"{name}.json") for name in PARTS if _there(folder, name)}
    for name, needs in ((PLAIN, "controllers"), (FIDELITY, "lines")):
        if _there(folder, name):
            found[name] = _read_plain(folder / f"{name}.json", needs)
    if not found:
        raise UserError(
            f"{folder} holds no results; make some with python evaluate.py --policy adaserve "
            f"slack-priced --out {folder}"
        )
    # Fidelity is of the machine and its profile: it may be older than what it vouches for.
    made = {name: of.get("versions") or {} for name, of in found.items() if name != FIDELITY}
    refuse_mixed(folder, made)
    return Found(folder, found)


def _there(folder: Path, name: str) -> bool:
    return (folder / f"{name}.json").is_file()


def _read_plain(path: Path, needs: str) -> Data:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as results ({error}); expected what a finished run wrote"
        ) from error
    if not isinstance(data, dict) or needs not in data:
        raise UserError(f"{path} holds no {needs}; expected what a finished run wrote")
    return data
