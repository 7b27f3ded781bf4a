"""`DraftGym/Serve-v0`: checkers, repeatable episodes in every process, fresh arrays, training."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import envs
from engine.errors import UserError
from engine.replay.drawing import RecordedDrawing
from engine.replay.recorded_request import RecordedRequest
from engine.replay.recording_folder import write_manifest, write_shard
from tests.replay_episodes import WORK, digest, play
from tests.test_architecture import packages_loaded_by
from tests.tiny_recording import known_profile, recorded, replay_server

ROOT = Path(__file__).resolve().parents[1]


def made(**kwargs: Any) -> gymnasium.Env:
    """The registered environment on the tiny recording."""
    return gymnasium.make(
        envs.SERVE_ID, **{"server": replay_server, "workload": WORK, "decide_every": 2, **kwargs}
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folder of the tiny recording, file of its profile."""
    folder = tmp_path_factory.mktemp("recording")
    manifest, recording = recorded()
    write_manifest(folder, manifest)
    write_shard(folder, recording, 0)
    return folder, known_profile(manifest).save(folder / "profile.json")


def test_gymnasiums_checker_passes_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made().unwrapped)
    assert not gymnasium.spec(envs.SERVE_ID).nondeterministic


def test_the_same_seed_is_the_same_episode_and_another_is_not() -> None:
    env = made()
    assert digest(play(env, 3)) == digest(play(env, 3)) == digest(play(made(), 3))
    assert digest(play(env, 3)) != digest(play(env, 4))


def test_an_episode_is_the_same_bit_for_bit_in_another_process(stored: tuple[Path, Path]) -> None:
    folder, profile = (str(path) for path in stored)
    code = (
        "import envs, gymnasium\n"
        "from tests.replay_episodes import WORK, digest, play\n"
        f"env = gymnasium.make(envs.SERVE_ID, recording={folder!r}, profile={profile!r},\n"
        "    workload=WORK, slots=3, decide_every=2)\n"
        "print(digest(play(env, 7)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    here = gymnasium.make(
        envs.SERVE_ID, recording=folder, profile=profile, workload=WORK, slots=3, decide_every=2
    )
    assert done.stdout.strip() == digest(play(here, 7))


def test_every_step_returns_arrays_of_its_own() -> None:
    steps = play(made(), 1, decisions=20)
    kept = [observation.copy() for observation, *_ in steps]
    for i, (observation, *_) in enumerate(steps):
        assert (observation == kept[i]).all()
        assert not any(np.shares_memory(observation, other[0]) for other in steps[:i])


def test_a_trace_ends_truncated_with_every_request_accounted() -> None:
    *_, (_, info, truncated) = play(made(decide_every=50), 2, decisions=10**4)
    assert truncated and info["serving"]["unfinished"] == 0
    assert info["serving"]["requests"] > 5 and info["clock_s"] > 1.0


def test_replay_brings_in_neither_torch_nor_a_model() -> None:
    heavy = {"torch", "transformers", "stable_baselines3"}
    assert (
        not packages_loaded_by("envs.replay, engine.replay.server, engine.replay.drawing") & heavy
    )


def test_held_out_texts_are_never_trained_on() -> None:
    def texts(held_out: bool) -> set[int]:
        draw = RecordedDrawing(replay_server(), WORK, held_out=held_out)
        drawn = [request for seed in range(6) for request in draw(np.random.default_rng(seed))]
        return {request.text for request in drawn if isinstance(request, RecordedRequest)}

    held_out = recorded()[1].held_out
    assert held_out[sorted(texts(True))].all() and not held_out[sorted(texts(False))].any()


def test_margins_must_be_asked_for() -> None:
    from policies.actions import ActionTable

    table = ActionTable(("coding", "chat", "summarization"), margins=(1.0, 0.6))
    with pytest.raises(UserError, match="lossless=False"):
        made(actions=table)
