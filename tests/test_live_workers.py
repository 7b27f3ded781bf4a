"""Engines in worker processes: stepped as those of this process, lost and started again."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from engine.replay.recording_folder import write_manifest, write_shard
from policies.action_codec import TierCodec
from policies.actions import ActionTable
from tests.scripted_workers import SECRET, Replayed, Script, observed, replayed, tiny_live
from tests.tiny_recording import known_profile, recorded
from train import session
from train.algorithms.registry import ALGORITHMS
from train.algorithms.timing import TimedRolloutBuffer, TimedSteps
from train.config import Episodes, Evaluation, Learning, Serving, TrainConfig
from train.saved_model import load_model
from train.watched_singles import WatchedSingles
from train.workers import failures, vector
from train.workers.failures import Died
from train.workers.vector import LOST, LiveWorkers

TABLE = ActionTable(DEFAULT_CLASSES.names)
CODEC = TierCodec(TABLE)
NEUTRAL = np.array(TABLE.neutral)
Make = Callable[..., LiveWorkers]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Workers by their recipes, closed when the test is over."""
    made: list[LiveWorkers] = []

    def workers(*recipes: Any, **options: Any) -> LiveWorkers:
        options = {"first_delay_s": 0.01, **options}
        made.append(LiveWorkers(recipes, CODEC, tmp_path / "workers", **options))
        return made[-1]

    yield workers
    for env in made:
        env.close()


def scripts(folder: Path, count: int, **options: Any) -> list[Script]:
    return [Script(folder / f"lives-{i}", **options) for i in range(count)]


def step(env: LiveWorkers) -> Any:
    return env.step(np.stack([NEUTRAL] * env.num_envs))


def test_workers_step_as_engines_of_this_process_do(make: Make, tmp_path: Path) -> None:
    manifest, recording = recorded()
    write_manifest(tmp_path, manifest)
    write_shard(tmp_path, recording, 0)
    profile = known_profile(manifest).save(tmp_path / "profile.json")
    ours = make(*[Replayed(tmp_path, profile)] * 2)
    theirs = WatchedSingles([replayed(tmp_path, profile) for _ in range(2)])
    ours.seed(3)
    theirs.seed(3)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    rng, over = np.random.default_rng(7), 0
    for _ in range(12):
        actions = rng.integers(0, TABLE.nvec, (2, len(TABLE.nvec)))
        mine, their = ours.step(actions), theirs.step(actions)
        for a, b in zip(mine[:3], their[:3], strict=True):
            np.testing.assert_array_equal(a, b)
        for told, expected in zip(mine[3], their[3], strict=True):
            assert told.keys() == expected.keys()
            last, lasted = (of.pop("terminal_observation", None) for of in (told, expected))
            np.testing.assert_equal((told, last), (expected, lasted))
        over += int(mine[2].sum())
    assert over > 2
    assert not np.shares_memory(mine[0], ours.step(actions)[0])
    theirs.step(actions)
    assert ours.figures() == theirs.figures() | {"workers/restarts": 0.0}
    assert "slo/attainment" in ours.figures()
    np.testing.assert_array_equal(ours.env_method("action_masks"), ours.action_masks())
    assert ours.has_attr("action_masks") and not ours.has_attr("engine")


def test_a_worker_that_is_killed_loses_its_episode_and_no_more(make: Make, tmp_path: Path) -> None:
    env = make(*scripts(tmp_path, 2), share=lambda: 0.25)
    env.seed(5)
    env.reset()
    for _ in range(2):
        before, _, dones, infos = step(env)
        assert not dones.any() and [info["share"] for info in infos] == [0.25, 0.25]
    assert env.restarts == 0 and not env.failures.path.exists()  # the control
    pid = env.pids[1]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    observations, rewards, dones, infos = step(env)
    assert dones.tolist() == [False, True] and rewards.tolist() == [1.0, 0.0]
    np.testing.assert_array_equal(observations[0], observed(1, 1, 3))
    np.testing.assert_array_equal(observations[1], observed(2, 1, 0))
    assert infos[1]["TimeLimit.truncated"] and infos[1]["elapsed_s"] == 0.0
    np.testing.assert_array_equal(infos[1]["terminal_observation"], before[1])
    assert infos[1][LOST] == "was ended by SIGKILL" and LOST not in infos[0]
    assert env.reset_infos[1]["seed"] not in (None, 5, 6)  # other arrivals than before
    assert env.pids[1] != pid and env.figures()["workers/restarts"] == 1.0
    assert "live engine 2 of 2 was ended by SIGKILL" in env.failures.path.read_text()
    assert env.figures()["slo/goodput_tps"] == 6.0  # 7 steps were served
    for _ in range(2):
        *_, infos = step(env)
    assert not any(LOST in info for info in infos)


FATES = {
    "raise": (f"raised RuntimeError: {SECRET}", True),
    "fault": ("was ended by SIGSEGV", True),
    "hang": ("did not answer for 2 s", True),
    "exit": ("ended by itself with exit code 3", False),
}


def test_whatever_ends_a_worker_is_told_with_its_traceback(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recipes = [Script(tmp_path / fate, {1: fate}) for fate in FATES]
    env = make(*recipes, Script(tmp_path / "well"), patience_s=2.0)
    env.reset()
    _, rewards, dones, infos = step(env)
    assert dones.tolist() == [True] * 4 + [False] and rewards.sum() == 1.0
    kept = env.failures.path.read_text().split("== ")[1:]
    for info, (reason, has_frames) in zip(infos, FATES.values(), strict=False):
        assert info[LOST] == reason
        (block,) = [block for block in kept if reason in block]
        assert ("scripted_workers.py" in block) is has_frames
        line = next(text for text in caplog.messages if reason in text)
        assert ("tests/scripted_workers.py:" in line) is has_frames
    assert env.restarts == 4
    assert not step(env)[2].any()


def test_who_always_dies_ends_training_after_waits_that_grow(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(vector, "LONGEST_DELAY_S", 0.05)
    monkeypatch.setattr(vector, "sleep", waited.append)
    env = make(Script(tmp_path / "lives", at_start="raise"))
    with pytest.raises(UserError) as caught:
        env.reset()
    assert waited == [0.01, 0.02, 0.04, 0.05, 0.05]
    assert (tmp_path / "lives").stat().st_size == 6
    told = str(caught.value)
    assert "live engine 1 of 1 died 6 times" in told and "\n" not in told
    assert SECRET in told and "tests/scripted_workers.py:" in told
    assert told.endswith(f"{env.failures.path})")


def test_deaths_far_apart_are_not_in_a_row(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector, "MOST_IN_A_ROW", 1)
    monkeypatch.setattr(vector, "HEALTHY", 2)
    env = make(*scripts(tmp_path, 1))
    env.reset()
    for served in (2, 2, 0):
        for _ in range(served):
            step(env)
        pid = env.pids[0]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        if served:
            step(env)
        else:
            with pytest.raises(UserError, match="died 2 times"):
                step(env)
    assert env.restarts == 2


def test_what_the_user_must_mend_is_not_tried_again(make: Make, tmp_path: Path) -> None:
    env = make(Script(tmp_path / "lives", at_start="user"))
    with pytest.raises(UserError, match=r"^--profile x: of another set-up; measure one$"):
        env.reset()
    assert (tmp_path / "lives").stat().st_size == 1 and env.restarts == 0


def test_a_closed_pipe_ends_a_worker(make: Make, tmp_path: Path) -> None:
    """As when the trainer is killed."""
    env = make(*scripts(tmp_path, 1))
    env.reset()
    worker = env._workers[0]
    process = worker._process
    assert process is not None
    worker.hang_up()
    process.join(5.0)
    assert process.exitcode == 0


def test_the_lost_step_teaches_nothing() -> None:
    """What is bootstrapped is the value of where the step began, at its time: no advantage."""

    class Critic:
        class policy:
            @staticmethod
            def obs_to_tensor(observation: np.ndarray) -> tuple[torch.Tensor, None]:
                return torch.from_numpy(observation)[None], None

            @staticmethod
            def predict_values(rows: torch.Tensor) -> torch.Tensor:
                return 3.0 * rows[:, :1]

    def advantage(last_seen: np.ndarray) -> float:
        buffer = TimedRolloutBuffer(
            1, vector.vector_space(vector.feature_table(TABLE.class_names)),
            vector.space_of(CODEC), device="cpu", gamma=0.5, n_envs=1,
        )  # fmt: skip
        began, rewards = observed(1, 1, 3), np.zeros(1)
        steps = TimedSteps(2.0)
        steps.model = Critic()  # type: ignore[assignment]
        info = {"elapsed_s": 0.0, "TimeLimit.truncated": True, "terminal_observation": last_seen}
        steps.locals = {"rewards": rewards, "rollout_buffer": buffer, "infos": [info]}
        steps._on_step()
        value = Critic.policy.predict_values(torch.from_numpy(began)[None])
        buffer.add(began[None], NEUTRAL[None], rewards, np.zeros(1), value, torch.zeros(1))
        buffer.compute_returns_and_advantage(torch.full((1,), 9.0), np.ones(1, np.bool_))
        return float(buffer.advantages[0, 0])

    assert advantage(observed(1, 1, 3)) == pytest.approx(0.0, abs=1e-6)
    assert abs(advantage(observed(2, 1, 0))) > 1.0  # of the episode that follows it would


def test_frames_are_told_outermost_first() -> None:
    fault = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread (most recent call first):\n"
        f'  File "{failures.ROOT}/engine/loop.py", line 7 in inner\n'
        '  File "/usr/lib/python3.12/threading.py", line 3 in outer\n'
    )
    raised = 'Traceback (most recent call last):\n  File "/a/b/c.py", line 1, in f\n'
    assert failures.frames(fault) == ["python3.12/threading.py:3", "engine/loop.py:7"]
    assert failures.frames(raised) == ["b/c.py:1"]
    assert Died("was ended by SIGKILL").sentence == "was ended by SIGKILL"


def test_engines_that_share_episodes_are_on_replay() -> None:
    live = Serving(backend="live")
    two = Learning(set=("n_envs=2",))
    TrainConfig(two, live).check()
    with pytest.raises(UserError, match=r"--shared-arrivals 2 --backend live: every live engine"):
        TrainConfig(two, live, episodes=Episodes(shared_arrivals=2)).check()


def test_a_run_on_live_engines_survives_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = tmp_path / "tiny.toml"
    workload.write_text(
        "duration_s = 2.0\nload = 0.5\nprompt_tokens = 24\ntruncate = true\n", encoding="utf-8"
    )
    config = TrainConfig(
        Learning(
            minutes=5.0, decisions=64, decide_every=2, actions="tiers", policy="maskable-ppo",
            set=("n_envs=2", "n_steps=8", "batch_size=8", "n_epochs=1"),
        ),
        Serving(backend="live", workload=str(workload), max_tokens=8),
        Evaluation(0),
        out=tmp_path / "run",
    )  # fmt: skip
    config.check()
    waits, steps = LiveWorkers.step_wait, [0]
    pids: set[int | None] = set()
    lost: list[tuple[int, int]] = []

    def killing(self: LiveWorkers) -> Any:
        steps[0] += 1
        pids.update(self.pids)
        if steps[0] == 5:
            os.kill(int(str(self.pids[1])), signal.SIGKILL)
        result = waits(self)
        lost.extend((steps[0], index) for index, info in enumerate(result[3]) if LOST in info)
        return result

    monkeypatch.setattr(LiveWorkers, "step_wait", killing)
    run = session.train(config, tiny_live, Console(file=io.StringIO(), width=160))
    assert run.is_done
    model = load_model(run.checkpoint, ALGORITHMS["maskable-ppo"])
    assert (model.num_timesteps, model.updates) == (64, 4)
    rows = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert rows[-1]["workers/restarts"] == 1.0 and "slo/goodput_tps" in rows[-1]
    assert "was ended by SIGKILL" in (run.path / "workers" / "failures.txt").read_text()
    assert lost == [(5, 1)]
    assert len(pids) == 3
    until = time.monotonic() + 5.0
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
