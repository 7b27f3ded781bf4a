"""`record.py` as it is run: shard by shard, stopped and taken up again, told in one table."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from engine.errors import UserError
from engine.protocol import Limits
from engine.replay.recipe import Recipe
from engine.replay.recording import Recording
from engine.replay.recording_folder import load, shards
from engine.serving import LiveServer
from engine.tiny import tiny_server
from train import recording as session
from train.interrupt import StopRequest
from train.record_config import RecordConfig

ROOT = Path(__file__).resolve().parents[1]
RECIPE = Recipe(classes=("chat", "maths"), texts_per_class=3, tokens=6, prompt_tokens=20)


@pytest.fixture(scope="module")
def server() -> LiveServer:
    return tiny_server(limits=Limits(slots=4, max_depth=3, max_width=3, max_nodes=9))


class StopAfter(StopRequest):
    """A stop that comes while shard number `shards` is recorded."""

    def __init__(self, shards: int) -> None:
        self._left = shards
        self._previous = {}

    @property
    def requested(self) -> bool:
        self._left -= 1
        return self._left < 0

    @requested.setter
    def requested(self, value: bool) -> None:
        raise AssertionError("nobody sends a signal here")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "TEXTS_PER_SHARD", 2)


def run(
    out: Path, server: LiveServer, recipe: Recipe = RECIPE, stop: StopRequest | None = None
) -> str:
    """What `record.py` prints; the server's settings are as before afterwards."""
    console = Console(file=io.StringIO(), width=130)
    settings = server.settings
    try:
        session.record(RecordConfig(out, recipe), lambda _: server, console, stop)
    finally:
        server.settings = settings
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_recording_is_made_and_told(tmp_path: Path, server: LiveServer) -> None:
    said = run(tmp_path / "r", server)
    manifest, recording = load(tmp_path / "r")
    assert manifest.classes == ("chat", "maths") and manifest.max_width == 3
    assert recording.texts == 6 and recording.places == 6 * 5
    assert recording.held_out.sum() == 2
    assert recording.text_class.tolist() == [0, 1] * 3
    assert "6 texts, 30 places" in said and "eagle3(6,8,32)" in said and str(tmp_path) in said
    table = [line.split() for line in said.splitlines() if line.startswith(("chat", "maths"))]
    assert [row[:4] for row in table] == [[name, "3", "1", "15"] for name in ("chat", "maths")]
    assert not (tmp_path / "r" / "unfinished.txt").exists()


def arrays(folder: Path) -> list[bytes]:
    """The bytes of every shard's arrays."""
    found = []
    for path in shards(folder):
        with np.load(path) as stored:
            found += [stored[name].tobytes() for name in stored.files]
    return found


def test_what_was_stopped_goes_on_and_ends_the_same(tmp_path: Path, server: LiveServer) -> None:
    run(tmp_path / "whole", server)
    said = run(tmp_path / "parts", server, stop=StopAfter(1))
    assert "stopped with 2 of 3 shards to go; repeat the command" in said
    assert len(shards(tmp_path / "parts")) == 1
    with pytest.raises(UserError, match="is not finished"):
        load(tmp_path / "parts")
    before = shards(tmp_path / "parts")[0].stat().st_mtime_ns
    run(tmp_path / "parts", server)
    assert shards(tmp_path / "parts")[0].stat().st_mtime_ns == before
    assert arrays(tmp_path / "parts") == arrays(tmp_path / "whole")
    # A shard in the middle that was deleted, because it was damaged, is made again.
    shards(tmp_path / "parts")[1].unlink()
    run(tmp_path / "parts", server)
    assert arrays(tmp_path / "parts") == arrays(tmp_path / "whole")
    # With nothing to do the table is shown again.
    assert "6 texts, 30 places" in run(tmp_path / "parts", server)


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        (Recipe(**{**vars(RECIPE), "tokens": 7}), r"another recording \(tokens 6, now 7\)"),
        (Recipe(**{**vars(RECIPE), "seed": 1}), r"seed 0, now 1; prompts_digest"),
        (Recipe(**{**vars(RECIPE), "classes": ("chats",)}), "no prompts of the class 'chats'"),
        (Recipe(**{**vars(RECIPE), "prompts": "/nowhere"}), "no prompts at /nowhere"),
        (Recipe(**{**vars(RECIPE), "tokens": 900}), "exceed the context of"),
        (Recipe(**{**vars(RECIPE), "texts_per_class": 99}), "prompts of the class 'chat'"),
    ],
)
def test_another_recording_and_bad_input_are_one_sentence(
    tmp_path: Path, server: LiveServer, recipe: Recipe, says: str
) -> None:
    if recipe.tokens < 900:
        run(tmp_path, server, stop=StopAfter(1))
    with pytest.raises(UserError, match=says):
        run(tmp_path, server, recipe)


def test_no_prompt_is_in_both_parts(tmp_path: Path, server: LiveServer) -> None:
    run(tmp_path, server)
    _, r = load(tmp_path)
    prompts = [
        tuple(r.tokens[a : a + n].tolist())
        for a, n in zip(r.first_token, r.prompt_tokens, strict=False)
    ]
    held_out = {p for p, held in zip(prompts, r.held_out, strict=True) if held}
    assert held_out and not held_out & {
        p for p, held in zip(prompts, r.held_out, strict=True) if not held
    }
    assert isinstance(r, Recording)


def test_help_is_light_and_bad_values_are_one_line() -> None:
    probe = (
        "import runpy, sys; sys.argv = ['record.py', '--help']\n"
        "try: runpy.run_path('record.py', run_name='__main__')\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "print('LOADED', *sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    text, _, loaded = done.stdout.partition("LOADED")
    assert "--texts-per-class" in text and "--held-out-share" in text
    assert not {"torch", "numba", "transformers", "scipy"} & set(loaded.split())
    done = subprocess.run(
        [sys.executable, "record.py", "--out", "x", "--tokens", "1"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "--tokens 1: expected at least 2\n"
