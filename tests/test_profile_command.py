"""`python -m engine.profile` as typed: quick help, one line for bad input, a stored profile."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import UserError
from engine.profile import HardwareProfile, command
from engine.protocol import Limits
from engine.serving import LiveConfig, LiveServer
from engine.tiny import tiny_server
from tests import profile_steps

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "scipy", "numba", "transformers", "rich")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The command on tiny networks, for as short a time as it can; returns its cache."""
    limits = Limits(slots=2, max_depth=4, max_width=4, max_nodes=16)

    def load(config: LiveConfig) -> LiveServer:
        assert config.slots == 2
        drafter = config.drafter
        return tiny_server(0, 16, limits=limits, capacity_tokens=128, drafter=drafter)

    monkeypatch.setattr(LiveServer, "load", load)
    monkeypatch.setattr(command, "QUICK_ROUNDS", 3)
    monkeypatch.setattr(command, "QUICK_BUDGET_S", 0.0)
    monkeypatch.setenv("DRAFTGYM_CACHE", str(tmp_path / "cache"))
    with profile_steps.one_thread():
        yield tmp_path / "cache"


def test_a_profile_is_measured_stored_and_told(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.json"
    assert command.main(["--quick", "--slots", "2", "--out", str(out)]) == 0
    said = capsys.readouterr()
    (kept,) = tiny.rglob("*.json")
    profile = HardwareProfile.load(out)
    assert HardwareProfile.load(kept) == profile and profile.identity.drafter == "eagle3"
    assert str(kept) in said.out and str(out) in said.out
    for word in ("verify", "draft", "prefill", "step", "held out", "noise", "budget", "power"):
        assert word in said.out, word
    if not profile.power.is_measured:
        assert "modelled" in said.out
    assert said.err.splitlines() == ["Loading", "Measuring"]  # on a pipe, no bar


def test_another_drafter_is_profiled(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--quick", "--slots", "2", "--drafter", "prompt-lookup"]) == 0
    assert "drafter     prompt-lookup, network none" in capsys.readouterr().out
    (kept,) = tiny.rglob("*.json")
    assert HardwareProfile.load(kept).identity.drafter == "prompt-lookup"


def test_the_options_say_what_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LiveConfig] = []

    def load(config: LiveConfig) -> LiveServer:
        asked.append(config)
        raise UserError("enough")

    monkeypatch.setattr(LiveServer, "load", load)
    words = "--model big --drafter model --draft-model small --dtype float32 --threads 1 --slots 4"
    wanted = LiveConfig(
        "big", dtype="float32", slots=4, threads=1, drafter="model", draft_model="small"
    )
    assert command.main(words.split()) == 2
    assert command.main([*words.split(), "--no-graphs"]) == 2
    assert asked == [wanted, dataclasses.replace(wanted, graphs=False)]


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
        (["--threads", "-1"], "--threads -1: expected 0 for all cores"),
        (["--drafter", "oracle"], "no drafter is called 'oracle'; known are eagle3, model"),
        (["--drafter", "model"], "needs a draft model"),
        (["--draft-model", "x"], "a draft model was given, but the drafter is eagle3"),
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
    for option in ("--quick", "--out FILE", "--drafter", "--draft-model", "--threads"):
        assert option in text
    assert not set(HEAVY) & set(loaded.split())
