"""`python -m engine.profile` as typed: quick help, one line for bad input, a stored profile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.errors import UserError
from engine.profile import HardwareProfile, command
from engine.protocol import Limits
from engine.serving import LiveConfig, LiveServer
from engine.tiny import tiny_server

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "scipy", "numba", "transformers", "rich")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The command on tiny networks, for as short a time as it can; returns its cache."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    limits = Limits(slots=2, max_depth=4, max_width=4, max_nodes=16)

    def load(config: LiveConfig) -> LiveServer:
        assert config.slots == 2
        return tiny_server(0, 16, limits=limits, capacity_tokens=128)

    monkeypatch.setattr(LiveServer, "load", load)
    monkeypatch.setattr(command, "QUICK_ROUNDS", 2)
    monkeypatch.setattr(command, "QUICK_BUDGET_S", 0.0)
    monkeypatch.setenv("DRAFTGYM_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    torch.set_num_threads(threads)


def test_a_profile_is_measured_stored_and_told(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.json"
    assert command.main(["--quick", "--slots", "2", "--out", str(out)]) == 0
    said = capsys.readouterr()
    (kept,) = tiny.rglob("*.json")
    assert HardwareProfile.load(out) == HardwareProfile.load(model="tiny")
    assert str(kept) in said.out and str(out) in said.out
    for word in ("verify", "draft", "prefill", "step", "held out", "noise", "budget", "power"):
        assert word in said.out, word
    if not HardwareProfile.load(out).power.is_measured:
        assert "modelled" in said.out
    assert said.err.splitlines() == ["Loading", "Measuring"]  # on a pipe, no bar


def test_an_interrupted_run_keeps_the_earlier_profile(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(config: LiveConfig) -> LiveServer:
        raise KeyboardInterrupt

    monkeypatch.setattr(LiveServer, "load", interrupted)
    assert command.main(["--quick"]) == 130
    assert "stopped" in capsys.readouterr().err
    assert not list(tiny.rglob("*.json"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--slots", "0"], "--slots 0: expected a number of at least 1"),
        (["--slots", "x"], "invalid int value"),
        (["--slow"], "unrecognized arguments: --slow"),
        (["--out", "."], "is a folder"),
        (["--model", "no-such-model"], "no-such-model"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = command.main(words)
    except SystemExit as stop:
        code = int(stop.code or 0)
    lines = [x for x in capsys.readouterr().err.splitlines() if x not in ("Loading", "Measuring")]
    assert code == 2
    assert len(lines) == 1 and says in lines[0], lines


def test_a_failed_load_says_so(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(config: LiveConfig) -> LiveServer:
        raise UserError("no draft head is known;\nfetch one")

    monkeypatch.setattr(LiveServer, "load", broken)
    assert command.main(["--quick"]) == 2
    assert "error: no draft head is known; fetch one" in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    probe = (
        "import runpy, sys; sys.argv = ['profile', '--help']\n"
        "try: runpy.run_module('engine.profile', run_name='__main__')\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "print('LOADED', *sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    text, _, loaded = done.stdout.partition("LOADED")
    assert "--quick" in text and "--out FILE" in text
    assert not set(HEAVY) & set(loaded.split())
