"""What a command's folder has, whatever the command: what was asked, exactly; every file whole.

`train.run_folder` and `train.tuning.study_folder` say what else is in theirs.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from engine.atomic_write import write_atomic
from engine.errors import UserError
from eval.versions import versions
from train.command_line import as_toml

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

VERSIONS = "versions.json"


@dataclass(frozen=True)
class Kind:
    """Whose folder it is, and the format of its files."""

    what: str
    made_by: str
    """Command and example, as in "train.py made, such as runs/ppo-shifting-…"."""
    key: str
    """Under which versions.json has the format."""
    format: int
    anew: str
    """What to do where it cannot be read."""


class CommandFolder:
    """One on disk. `open` takes up one that is there."""

    KIND: ClassVar[Kind]

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(cls, path: Path) -> Self:
        """Make it where nothing is yet. Raises UserError."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(
                f"--out {path}: there is something already; name a new folder, or go on with a "
                f"{cls.KIND.what} by --resume {path}"
            )
        make_out(path)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Take it up. Raises UserError where it is of another kind or format."""
        kind, folder, stamp = cls.KIND, cls(path), path / VERSIONS
        for needed in (stamp, folder.config):
            if not needed.is_file():
                raise UserError(
                    f"{path}: no {kind.what} folder (it holds no {needed.name}); expected one that "
                    f"{kind.made_by}"
                )
        try:
            found = json.loads(stamp.read_text(encoding="utf-8")).get(kind.key)
        except (json.JSONDecodeError, UnicodeDecodeError, AttributeError) as error:
            raise UserError(f"{stamp} is damaged ({error}); {kind.anew}") from error
        if found != kind.format:
            raise UserError(
                f"{path}: a {kind.what} folder of format {found!r}; this DraftGym reads format "
                f"{kind.format}, so go on with the version that made it, or {kind.anew}"
            )
        return folder

    @property
    def config(self) -> Path:
        """What was asked, as --config takes it."""
        return self.path / "config.toml"

    def write_asked(self, config: DataclassInstance) -> None:
        """config.toml, command.txt (one line a start) and versions.json.

        `config` has the fields out, config and resume, which are left out.
        """
        settings = replace(config, out=None, config=None, resume=None)
        write_atomic(self.config, as_toml(settings))
        command = self.path / "command.txt"
        before = command.read_text(encoding="utf-8") if command.is_file() else ""
        write_atomic(command, f"{before}{shlex.join(['python', *sys.argv])}\n")
        self.write_json(VERSIONS, {self.KIND.key: self.KIND.format, **versions()})

    def write_json(self, name: str, values: Mapping[str, Any]) -> Path:
        """Write `values`, strict JSON, as a file of that name."""
        path = self.path / name
        text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomic(path, text + "\n")
        return path

    @classmethod
    def defaults(cls, resumed: Path | None, config: Path | None) -> list[Path]:
        """The files that give defaults, weakest first: the resumed folder's, then --config."""
        files = [] if resumed is None else [cls.open(resumed).config]
        return files + ([] if config is None else [config])


def make_out(path: Path) -> None:
    """Make the folder that --out names, if it is not there. Raises UserError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--out {path}: the folder cannot be made ({error.strerror}); name another"
        ) from error


def with_out(arguments: Sequence[str], out: Path) -> list[str]:
    """What is typed to go on: the same arguments, with the folder."""
    given = any(word == "--out" or word.startswith("--out=") for word in arguments)
    return [*arguments] if given else [*arguments, "--out", str(out)]
