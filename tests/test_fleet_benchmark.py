"""The benchmark of replay: its bars, and its figures on the tiny recording."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import replay, replay_process, replay_speed, replay_training
from benchmarks.figures import UnmeasuredError
from tests.tiny_recording import replay_server


def test_the_issues_bars_are_all_there() -> None:
    bars = {figure.name: str(figure.bar) for figure in replay.FIGURES if figure.bar}
    assert bars == {
        "fleet_fixed": "≥ 50000",
        "fleet_budget": "≥ 25000",
        "single": "≥ 8000",
        "ppo": "≥ 4000",
        "start_cached": "≤ 10 s",
        "start_fresh": "≤ 60 s",
        "same_episode": "≤ 0",
        "memory": "≤ 200 MB",
        "fidelity": "≤ 0",
        "ranking": "≤ 0",
        "tiers": "≤ 0",
    }


@pytest.mark.parametrize("budget", [None, 8])
def test_steps_are_counted_and_a_batch_that_is_not_full_is_no_figure(
    budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_speed, "QUICK_ROUND_STEPS", 120)
    monkeypatch.setattr(replay_speed, "WORK", replace(replay_speed.WORK, max_tokens=24))
    result = replay_speed.measured(replay_server(), 4, budget, quick=True)
    assert result.value > 0 and len(result.raw["rates"]) == replay_speed.ROUNDS
    assert 0 < result.raw["running"] <= 4  # as many slots as the tiny server has
    assert "requests ran on average" in result.broken


def test_the_code_of_processes_of_their_own_can_be_compiled() -> None:
    named = replay_training.set_up(Path("a folder"), Path("p.json"))
    assert "recording=Path('a folder'), profile=Path('p.json')" in named
    shipped = replay_training.set_up(None, None)
    assert "recording=None, profile=None" in shipped
    compile(replay_training.START.format(set_up=shipped), "start", "exec")
    compile(replay_training.PPO.format(set_up=named, decisions=9), "ppo", "exec")
    compile(replay_process.EPISODE.format(steps=9), "episode", "exec")
    compile(replay_process.MEMORY.format(made=replay_process.ONE), "memory", "exec")


def test_a_process_that_fails_is_no_figure() -> None:
    assert replay_training.run_python("print(1)\nprint(2)") == "2"
    with pytest.raises(UnmeasuredError, match="ZeroDivisionError"):
        replay_training.run_python("1 / 0")
