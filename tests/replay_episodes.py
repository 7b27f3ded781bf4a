"""Episodes of `DraftGym/Serve-v0` under random actions. No torch: processes start fast."""

from __future__ import annotations

import hashlib

import gymnasium

from engine.workload import WorkloadConfig

WORK = WorkloadConfig(name="tiny", duration_s=3.0, load=0.9, max_tokens=16)


def play(env: gymnasium.Env, seed: int, decisions: int = 60) -> list[tuple]:
    """One episode of random actions, or its beginning."""
    env.action_space.seed(seed)
    steps: list[tuple] = [(*env.reset(seed=seed), False)]
    while len(steps) <= decisions and not steps[-1][-1]:
        observation, reward, _, truncated, info = env.step(env.action_space.sample())
        steps.append((observation, {"reward": reward, **info}, truncated))
    return steps


def figures(info: dict) -> list[tuple[str, str]]:
    """Those of a step that are fractions, to the last bit."""
    return sorted((name, value.hex()) for name, value in info.items() if isinstance(value, float))


def digest(steps: list[tuple]) -> str:
    """Of every bit of observations, rewards and figures."""
    text = "|".join(
        f"{observation.tobytes().hex()} {figures(info)}" for observation, info, _ in steps
    )
    return hashlib.sha256(text.encode()).hexdigest()
