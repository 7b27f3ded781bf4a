"""Environments on a recording in a folder, what comes after a snapshot of them, and its digest.

Run as a command it restores snapshots in a process of its own and prints the digests.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import envs
from engine.profile.hardware_profile import HardwareProfile
from engine.replay.recording_folder import load as load_recording
from engine.replay.server import ReplayConfig, ReplayServer
from engine.snapshot_file import load
from engine.workload import WorkloadConfig

WORK = WorkloadConfig(name="short", duration_s=0.7, rate_rps=14.0, max_tokens=16)
COUNT = 3
KINDS = ("single", "vector", "sb3")


def server(folder: Path) -> ReplayServer:
    """The recording and the profile in the folder."""
    manifest, recording = load_recording(folder / "recording")
    profile = HardwareProfile.load(folder / "profile.json")
    return ReplayServer(manifest, recording, profile, ReplayConfig(slots=4, capacity_tokens=192))


def make(kind: str, of: ReplayServer, **options: Any) -> Any:
    """One environment, or both faces of several."""
    options = {"server": of, "workload": WORK, **options}
    if kind == "single":
        return gymnasium.make(envs.SERVE_ID, **options).unwrapped
    together: Any = gymnasium.make_vec(envs.SERVE_ID, COUNT, **options).unwrapped
    if kind == "vector":
        return together
    from train.watched_fleet import WatchedFleet

    return WatchedFleet(together.serving)


def begin(kind: str, env: Any, seed: int) -> None:
    """The first episodes."""
    if kind == "sb3":
        env.seed(seed)
        env.reset()
    else:
        env.reset(seed=seed)


def play(env: Any, steps: int, seed: int) -> list[Any]:
    """Under random actions: all that each step brings; a single environment is reset at ends."""
    rng, together = np.random.default_rng(seed), getattr(env, "serving", None)
    nvec = env.action_space.nvec if together is None else [together.actions.nvec] * COUNT
    brought: list[Any] = []
    for _ in range(steps):
        brought.append(env.step(rng.integers(0, nvec)))
        if together is None and brought[-1][3]:
            brought.append(env.reset())
    return brought


def books(kind: str, env: Any) -> list[Any]:
    """Records of all requests that came to the episodes under way."""
    if kind == "single":
        return list(env.engine.close_records())
    return [env.serving.fleet.records(replica) for replica in range(COUNT)]


def bits(value: Any) -> str:
    """Every bit of what steps brought."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.tolist()!r}"
    if isinstance(value, dict):
        return repr([(name, bits(value[name])) for name in sorted(value)])
    if isinstance(value, list | tuple):
        return repr([bits(item) for item in value])
    return repr(float(value)) if isinstance(value, np.floating) else repr(value)


def digest(value: Any) -> str:
    """Likewise, short."""
    return hashlib.sha256(bits(value).encode()).hexdigest()


def follow(kind: str, env: Any) -> str:
    """What comes now, as a digest."""
    steps = play(env, 40, 5)
    return digest([steps, books(kind, env)])


def main() -> None:
    """Restore what lies in the folder, and print what follows."""
    folder = Path(sys.argv[1])
    of = server(folder)
    for kind in KINDS:
        env = make(kind, of)
        seen = env.restore(load(folder / f"{kind}.npz"))
        print(kind, digest(seen), follow(kind, env))


if __name__ == "__main__":
    main()
