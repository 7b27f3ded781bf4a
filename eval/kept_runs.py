"""Many runs in processes, each kept in a folder when it is done: what was cut goes on from there.

A run's result is JSON, in a file of its own that is written whole or not at all. The folder says
what its runs were made with; where that differs now, nothing is taken up and nothing is removed.
What a run is, and what is made of all of them, is the caller's.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from engine.atomic_write import write_atomic
from engine.errors import UserError
from eval.parts import MADE_WITH
from eval.pool import PROCESSES, each_made
from eval.versions import versions
from policies import registry

EVERY_S = 5.0
"""Between two lines of progress."""
Task = TypeVar("Task")


class Kept:
    """The folder of unfinished runs."""

    def __init__(self, folder: Path, made_with: Mapping[str, Any]) -> None:
        """Takes up what is there where `made_with`, JSON types only, is the same.

        Raises UserError where it is not, and where nothing can be written.
        """
        self.folder = folder
        head, text = folder / "made_with.json", json.dumps(made_with, sort_keys=True, indent=1)
        before = _text_of(head)
        if before is not None:
            if other := _differing(before, json.loads(text)):
                raise UserError(
                    f"--out {folder.parent} holds unfinished runs that were made with other "
                    f"{other}; repeat their own command to go on, or name another folder"
                )
            return
        shutil.rmtree(folder, ignore_errors=True)  # without the head nobody knows whose they are
        try:
            write_atomic(head, text)
        except OSError as error:
            raise UserError(
                f"--out {folder.parent}: nothing can be kept there ({error.strerror}); name a "
                "folder with free space that you may write to"
            ) from error

    def load(self, name: str) -> Any:
        """What the run of that name brought; None where it is not done."""
        text = _text_of(self._path(name))
        return None if text is None else json.loads(text)

    def save(self, name: str, made: Any) -> None:
        """Keep it. Raises OSError."""
        write_atomic(self._path(name), json.dumps(made))

    def forget(self) -> None:
        """All is done."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}.json"


def made_with(specs: Mapping[str, str], **settings: Any) -> dict[str, Any]:
    """What decides a run, as JSON: runs of which it differs are not to be mixed.

    `specs` by the name that is shown, as `policies.registry` takes them; `settings` are the test's.
    """
    exported = {name: registry.exported_folder(spec) for name, spec in specs.items()}
    here = versions()
    return {
        "policies": dict(specs),
        "exports": {
            name: hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
            for name, folder in exported.items()
            if folder is not None
        },
        **{name: here[name] for name in MADE_WITH},
        **settings,
    }


def all_made(
    do: Callable[[Task], Any],
    tasks: Mapping[str, Task],
    kept: Kept,
    say: Callable[[str], None],
    label: str,
    processes: int = PROCESSES,
) -> dict[str, Any]:
    """By name what `do`, a function of a module, makes of each task, in the order of `tasks`.

    `say` is told every few seconds how far it is and how long the rest takes at that rate.
    """
    before = {name: kept.load(name) for name in tasks}
    # Who raised is asked again: what was wrong may have been mended meanwhile.
    made = {n: of for n, of in before.items() if of is not None and not _has_failed(of)}
    left = [(name, task) for name, task in tasks.items() if name not in made]
    if made and left:
        say(f"{label}: {len(made)} of {len(tasks)} runs were done before and are taken up")
    began_s = said_s = time.monotonic()
    for done, ((name, _), result) in enumerate(
        each_made(partial(_of_named, do), left, processes), start=1
    ):
        made[name] = result
        kept.save(name, result)
        now_s = time.monotonic()
        if now_s - said_s >= EVERY_S or done == len(left):
            said_s = now_s
            rest_s = round((now_s - began_s) / done * (len(left) - done))
            say(
                f"{label} {100 * len(made) // len(tasks):3d} %  {len(made)} of {len(tasks)} · "
                f"{name} · {rest_s // 60}:{rest_s % 60:02d} left"
            )
    return {name: made[name] for name in tasks}


def _has_failed(made: Any) -> bool:
    return isinstance(made, dict) and bool(made.get("failed"))


def _of_named(do: Callable[[Any], Any], named: tuple[str, Any]) -> Any:
    return do(named[1])


def _differing(before: str, now: Mapping[str, Any]) -> str:
    """In what the two differ, in words; "" in nothing."""
    try:
        found = dict(json.loads(before))
    except (ValueError, TypeError):
        return "things than these (made_with.json is damaged)"
    keys = sorted(now.keys() | found.keys())
    return ", ".join(key for key in keys if now.get(key) != found.get(key))


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
