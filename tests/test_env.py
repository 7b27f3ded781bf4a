"""The live environment on a tiny server: both checkers, episodes, clock, bad input."""

import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as check_gymnasium

import envs
from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from engine.protocol import Limits
from engine.request import Request
from engine.serving import LiveServer
from engine.tiny import tiny_server
from envs.serve import ServeEnv
from policies import registry
from policies.actions import ActionTable
from policies.learned import LearnedController
from tests.test_learned import controller_parts

ROOT = Path(__file__).resolve().parents[1]
Draw = Callable[[np.random.Generator], list[Request]]


@pytest.fixture(scope="module")
def server() -> LiveServer:
    """Tiny networks behind the real engine."""
    return tiny_server(limits=Limits(slots=4))


def draw(generator: np.random.Generator, count: int = 12, gap_s: float = 0.002) -> list[Request]:
    """A short trace over three classes."""
    arrivals = np.cumsum(generator.exponential(gap_s, count))
    return [
        Request(i, i % 3, generator.integers(0, 64, 8).tolist(), 12, float(at))
        for i, at in enumerate(arrivals)
    ]


def made(server: LiveServer, requests: Draw = draw, **kwargs: Any) -> gymnasium.Env:
    """The registered environment on the tiny server."""
    return gymnasium.make(envs.LIVE_ID, server=lambda: server, requests=requests, **kwargs)


def play(env: gymnasium.Env, seed: int = 0) -> list[tuple]:
    """One episode of random actions."""
    env.action_space.seed(seed)
    env.reset(seed=seed)
    steps: list[tuple] = []
    while not (steps and steps[-1][3]):
        steps.append(env.step(env.action_space.sample()))
    return steps


@pytest.mark.parametrize("kwargs", [{}, {"decide_every": 4}, {"max_decisions": 3}])
def test_checkers_pass_without_a_warning(server: LiveServer, kwargs: dict) -> None:
    from stable_baselines3.common.env_checker import check_env as check_sb3

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = made(server, **kwargs)
        check_gymnasium(env.unwrapped)
        check_sb3(env)
        check_sb3(env.unwrapped)
        env.close()


def test_server_itself_may_be_given(server: LiveServer) -> None:
    env = gymnasium.make(envs.LIVE_ID, server=server, requests=draw)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert env.spec is not None and env.spec.nondeterministic


def test_episode_ends_truncated_with_every_request_accounted(server: LiveServer) -> None:
    steps = play(made(server))
    assert not any(step[2] for step in steps)
    assert [step[3] for step in steps] == [False] * (len(steps) - 1) + [True]
    infos = [step[4] for step in steps]
    assert all("serving" not in info for info in infos[:-1])
    serving = infos[-1]["serving"]
    assert serving["requests"] == 12 and serving["unfinished"] == 0
    assert sum(info["finished"] for info in infos) == 12
    attained = sum(info["attained"] for info in infos)
    assert serving["attainment"] == pytest.approx(attained / 12)
    # 12 tokens each, the first of them by prefill.
    assert sum(info["emitted_tokens"] for info in infos) == 12 * 11
    assert sum(info["cost"] for info in infos) == 12 - attained
    for step in steps:
        parts = [v for k, v in step[4].items() if k.startswith("reward/")]
        assert step[1] == pytest.approx(sum(parts)) and isinstance(step[1], float)


class StepClock:
    """Stands in for perf_counter in the engine: a millisecond passes with every call."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1e-3
        return self.now_s


@pytest.fixture
def step_clock(monkeypatch: pytest.MonkeyPatch) -> StepClock:
    """Makes the engine's timing repeatable."""
    clock = StepClock()
    monkeypatch.setattr("engine.loop.perf_counter", clock)
    monkeypatch.setattr("envs.serve.perf_counter", lambda: 0.0)  # decisions are free
    return clock


def test_clock_is_the_engines_and_trainers_time_is_free(
    server: LiveServer, step_clock: StepClock
) -> None:
    env = made(server)
    _, info = env.reset(seed=1)
    total, busy_s, truncated = info["clock_s"], 0.0, False
    while not truncated:
        step_clock.now_s += 1000.0  # a trainer that thinks
        *_, truncated, info = env.step(env.action_space.sample())
        total += info["elapsed_s"]
        busy_s += info["busy_s"]
        assert 0 <= info["elapsed_s"] < 1
    assert total == pytest.approx(info["clock_s"]) and 0 < busy_s <= total + 1e-9


def test_exported_controller_repeats_the_trained_episode(
    server: LiveServer, step_clock: StepClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network acting through the environment, and the exported folder's controller alone."""
    weights, manifest = controller_parts(3)
    names = [f.name for f in manifest.features]
    for name in ("engine.memory", "engine.power"):  # measured, so never quite the same twice
        weights["policy.0.weight"][:, names.index(name)] = 0
    controller = LearnedController(manifest, weights)
    requests = draw(np.random.default_rng(5))
    options = {"decide_every": manifest.hold, "actions": manifest.actions, "lossless": False}
    env = made(server, lambda _: requests, **options)
    observation, _ = env.reset(seed=0)
    actions, truncated = [], False
    while not truncated:
        actions.append(controller.network.action(observation))
        observation, *_, truncated, _ = env.step(actions[-1])
    texts = [r.output for r in requests]

    replayed: list[np.ndarray] = []
    choose = controller.network.action

    def spy(observation: np.ndarray) -> np.ndarray:
        replayed.append(choose(observation))
        return replayed[-1]

    monkeypatch.setattr(controller.network, "action", spy)
    requests = draw(np.random.default_rng(5))
    server.engine(requests).serve(controller)
    np.testing.assert_array_equal(np.stack(replayed), np.stack(actions))
    assert [r.output for r in requests] == texts
    assert len({tuple(a) for a in actions}) > 1, "the network must change its mind at least once"


def test_action_is_held_and_reaches_the_engine(server: LiveServer) -> None:
    env = made(server, decide_every=3, requests=partial(draw, gap_s=0.0))
    engine_env = env.unwrapped
    assert isinstance(engine_env, ServeEnv)
    env.reset(seed=2)
    off = np.zeros(12, dtype=np.int64)
    *_, info = env.step(off)
    assert info["iterations"] == 3 and engine_env.engine is not None
    assert engine_env.engine.counters["drafted"] == 0
    names = [f.name for f in engine_env.features]
    observation, *_ = env.step(np.array([2, 1, 1, 0] * 3))
    assert engine_env.engine.counters["drafted"] > 0
    assert observation[names.index("chat.previous_depth")] == pytest.approx(2 / 8)


def test_same_seed_same_arrivals_and_fresh_ones_after(server: LiveServer) -> None:
    traces: list[list[float]] = []

    def spy(generator: np.random.Generator) -> list[Request]:
        requests = draw(generator)
        traces.append([r.arrival_s for r in requests])
        return requests

    env = made(server, spy, seed=7)
    env.reset()
    env.reset(seed=7)
    env.reset()
    assert traces[0] == traces[1] != traces[2]


def test_reset_midway_and_observations_are_fresh(server: LiveServer) -> None:
    env = made(server)
    first, _ = env.reset(seed=3)
    kept = first.copy()
    second, *_ = env.step(env.action_space.sample())
    assert (first == kept).all() and not np.shares_memory(first, second)
    for _ in range(2):
        env.reset()
        env.step(env.action_space.sample())
    assert play(env)[-1][4]["serving"]["requests"] == 12


def test_max_decisions_cuts(server: LiveServer) -> None:
    steps = play(made(server, max_decisions=2, requests=partial(draw, gap_s=0.0)))
    assert len(steps) == 2 and steps[-1][3]
    serving = steps[-1][4]["serving"]
    assert serving["unfinished"] == 12 and math.isnan(serving["attainment"])


@pytest.mark.parametrize("tokens", [0, 1])
def test_trace_without_a_decision_is_legal(server: LiveServer, tokens: int) -> None:
    def only_first_tokens(generator: np.random.Generator) -> list[Request]:
        return [Request(i, 0, [1, 2], 1, 0.0) for i in range(tokens)]

    env = made(server, only_first_tokens)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    observation, _, terminated, truncated, info = env.step(env.action_space.sample())
    assert env.observation_space.contains(observation)
    assert truncated and not terminated and info["serving"]["requests"] == tokens
    assert info["elapsed_s"] == 0 and info["reward/valid"] == 0


def test_environment_and_controller_serve_alike(server: LiveServer) -> None:
    """One action for all is the fixed tree of the registry: same text, same counts."""
    texts = []
    requests = draw(np.random.default_rng(5), gap_s=0.0)
    env = made(server, lambda _: requests)
    env.reset(seed=0)
    while not env.step(np.array([3, 1, 1, 0] * 3))[3]:
        pass
    texts.append([r.output for r in requests])
    requests = draw(np.random.default_rng(5), gap_s=0.0)
    engine = server.engine(requests, DEFAULT_CLASSES)
    engine.serve(registry.make("eagle3(3,2,4)"))
    texts.append([r.output for r in requests])
    assert texts[0] == texts[1] and all(len(text) == 12 for text in texts[0])


def test_bad_input(server: LiveServer) -> None:
    env = made(server).unwrapped
    with pytest.raises(UserError, match="reset"):
        env.step(np.zeros(12, dtype=np.int64))
    with pytest.raises(UserError, match="options"):
        env.reset(options={"sede": 1})
    env.reset(seed=0)
    with pytest.raises(UserError, match="outside the table"):
        env.step(np.full(12, 9))
    for kwargs, says in (
        ({"decide_every": 0}, "decide_every is 0"),
        ({"max_decisions": 1.5}, "max_decisions"),
        ({"actions": ActionTable(("a", "b"))}, "one class table"),
        ({"actions": ActionTable(DEFAULT_CLASSES.names, margins=(1.0, 0.8))}, "lossless=False"),
    ):
        with pytest.raises(UserError, match=says):
            made(server, **kwargs).reset()  # type: ignore[arg-type]
    with pytest.raises(UserError, match="unknown workload"):
        gymnasium.make(envs.LIVE_ID, server=lambda: server, workload="stedy")


def test_a_nan_names_its_feature(server: LiveServer) -> None:
    env = made(server).unwrapped
    assert isinstance(env, ServeEnv)
    env.reset(seed=0)
    assert env.engine is not None
    env.engine.unloaded_tpot_s = float("nan")
    with pytest.raises(UserError, match=r"engine\.iteration|reward part"):
        env.step(np.zeros(12, dtype=np.int64))


def test_lossy_table_is_asked_for(server: LiveServer) -> None:
    assert made(server).action_space == gymnasium.spaces.MultiDiscrete([6, 4, 5, 1] * 3)
    lossy = made(server, lossless=False)
    assert lossy.action_space == gymnasium.spaces.MultiDiscrete([6, 4, 5, 3] * 3)
    lossy.reset(seed=0)
    lossy.step(np.array([3, 1, 1, 2] * 3))


def test_import_registers_without_torch() -> None:
    code = (
        "import sys, envs, gymnasium\n"
        "assert envs.LIVE_ID in gymnasium.registry\n"
        "assert not {'torch', 'numba', 'stable_baselines3'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
