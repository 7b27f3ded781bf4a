"""Learning-to-Draft's observation and task: its layout, and what an environment makes of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import envs
from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from engine.protocol import Candidates, Limits
from engine.request import Request
from engine.tiny import tiny_server
from envs.learning_to_draft import learning_to_draft
from policies.path_features import COPIES, LOWEST, observe_paths, path_table
from tests.tiny_recording import replay_server


def tree(depth: list[int], probability: list[float]) -> Candidates:
    """Candidates of one slot, with room for two more."""
    size = len(depth)
    rows = np.zeros((3, 1, size + 2), np.int64)
    rows[1, 0, :size] = depth
    chance = np.full((1, size + 2), 0.9)
    chance[0, :size] = probability
    return Candidates(np.array([size]), rows[0], rows[1], rows[2], chance)


def test_the_published_sizes_are_special_cases() -> None:
    published = path_table(Limits(slots=1, max_depth=13, max_width=10))
    assert len(published) == 1268
    assert sum(f.name.startswith("path.score_13_") for f in published) == 100
    limits = Limits(slots=1, max_depth=3, max_width=2)
    names = [f.name for f in path_table(limits)]
    assert len(set(names)) == len(names) == 2 + 4 + 4 + 2 * COPIES
    assert names[2] == "path.score_2_1" and names[6] == "path.score_3_1"


def test_every_layer_stands_at_its_place() -> None:
    limits = Limits(slots=1, max_depth=3, max_width=2)
    seen = observe_paths(tree([1, 2, 2, 3], [0.5, 0.125, 0.25, 0.0]), 0, 1500, limits)
    expected = [np.log(0.5), LOWEST, np.log(0.25), np.log(0.125), *[LOWEST] * 6]
    assert seen[:10].tolist() == pytest.approx(expected)
    assert seen[10:].tolist() == pytest.approx([1.5] * COPIES + [0.2] * COPIES)
    shallow = observe_paths(tree([1, 2], [0.5, 0.001]), 0, 1500, limits)
    assert shallow[:10].tolist() == pytest.approx([np.log(0.5), *[LOWEST] * 5, *[0.0] * 4])
    for nothing in (None, tree([], [])):
        seen = observe_paths(nothing, 0, 100, limits)
        assert seen.tolist() == pytest.approx([0] * 10 + [0.1] * COPIES + [0] * COPIES)
    low, high = np.array([(f.low, f.high) for f in path_table(limits)]).T
    far = observe_paths(tree([1, 1], [1e-40, 1.0]), 0, 10**9, limits)
    assert (far >= low).all() and (far <= np.float32(high)).all()


def serve(env: Any, steps: int) -> list[tuple[int, np.ndarray, float, dict[str, Any]]]:
    """Depth chosen, what was seen after it, reward and info, of one episode."""
    observation, _ = env.reset(seed=2)
    n = env.observation_space.shape[0] - 2 * COPIES
    rng, brought = np.random.default_rng(0), []
    assert not observation[:n].any()
    for _ in range(steps):
        action = rng.integers(0, env.action_space.nvec)
        observation, reward, _, truncated, info = env.step(action)
        assert env.observation_space.contains(observation)
        brought.append((int(action[0]), observation, float(reward), info))
        if truncated:
            break
    return brought


def test_its_task_on_replay() -> None:
    options = {**learning_to_draft(duration_s=2.0, rate_rps=4.0), "server": replay_server(slots=1)}
    env: Any = gymnasium.make(envs.SERVE_ID, **options)
    n = env.observation_space.shape[0] - 2 * COPIES
    token_s, drafted = None, 0
    for depth, seen, reward, info in serve(env, 25):
        token_s = env.unwrapped.engine.unloaded_tpot_s
        assert info["iterations"] == 1
        # Tokens per second, in multiples of ordinary decoding.
        assert reward == pytest.approx(info["emitted_tokens"] / info["busy_s"] * token_s)
        goes_on = env.unwrapped._view is not None and env.unwrapped._view.tokens_out[0] > 0
        scored = bool(seen[:n].any())
        if depth == 0 or not goes_on:
            assert not scored
        drafted += scored
    assert drafted > 8


def test_a_snapshot_carries_the_tree_that_was_seen() -> None:
    options = {**learning_to_draft(duration_s=2.0, rate_rps=4.0), "server": replay_server(slots=1)}
    one, other = (gymnasium.make(envs.SERVE_ID, **options).unwrapped for _ in range(2))
    one.reset(seed=2)
    seen = one.step(np.array([3, 0, 2, 0]))[0]
    assert seen[0] < 0
    taken = one.snapshot()  # type: ignore[attr-defined]
    other.reset(seed=1)
    restored = other.restore(taken)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(restored, seen)


def test_its_observation_on_a_live_engine() -> None:
    server = tiny_server(limits=Limits(slots=1, max_depth=3), capacity_tokens=96)

    def draw(rng: np.random.Generator) -> list[Request]:
        return [Request(i, 0, rng.integers(0, 64, 6).tolist(), 12, 0.0) for i in range(2)]

    options = {**learning_to_draft(depth=3), "server": server, "requests": draw}
    for name in ("slots", "workload"):
        del options[name]
    env = gymnasium.make(envs.LIVE_ID, **options)
    n = env.observation_space.shape[0] - 2 * COPIES  # type: ignore[index]
    brought = serve(env, 40)
    assert any(seen[:n].any() for depth, seen, _, _ in brought if depth)
    assert all(reward > 0 for _, _, reward, _ in brought)


def test_more_slots_than_one_are_refused() -> None:
    with pytest.raises(UserError, match=r"the engine has 4 slots; .* slots=1"):
        gymnasium.make(
            envs.SERVE_ID,
            server=replay_server,
            observation="learning-to-draft",
            classes=DEFAULT_CLASSES,
        )
