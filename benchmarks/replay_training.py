"""How fast training on replay is, and how soon it begins: both in processes of their own.

PPO is `train.py`'s own, network and updates included, on two cores. Start-up is from the first line
of the process to the first step of the environment: with a cache of compiled kernels that an
earlier process has filled, and with an empty one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.command import ROOT
from benchmarks.figures import MissingHardwareError, Result, UnmeasuredError

CORES = 2
DECISIONS, QUICK_DECISIONS = 100_000, 30_000

SET_UP = """
from pathlib import Path
from train import evaluation
from train.algorithms.arguments import arguments_of
from train.config import Serving, TrainConfig
from train.environments import environment
from train.first_model import new_model
config = TrainConfig(serving=Serving(backend="replay", recording={recording}, profile={profile}))
work = evaluation.served_workload(config.serving)
server = evaluation.load_server(config.serving)
draw = evaluation.drawing(server, config.serving, work)
arguments = arguments_of(config)
env = environment(server, draw, config, arguments)
model = new_model(env, config, arguments)
"""

START = """
import time
begun = time.perf_counter()
{set_up}
from stable_baselines3.common.callbacks import BaseCallback
class First(BaseCallback):
    def _on_step(self):
        return False
model.learn(1, callback=First())
print(time.perf_counter() - begun)
"""

PPO = """
import json, time
{set_up}
import torch
torch.set_num_threads(1)  # as `train.learning.train_model`
from train.algorithms.timing import TimedSteps
rollout = model.n_steps * model.n_envs
model.learn(2 * rollout, callback=TimedSteps())
begun, before = time.perf_counter(), model.num_timesteps
model.learn({decisions}, callback=TimedSteps(), reset_num_timesteps=False)
seconds = time.perf_counter() - begun
print(json.dumps(dict(seconds=seconds, steps=model.num_timesteps - before, envs=model.n_envs,
    rollout=rollout, batch=model.batch_size, epochs=model.n_epochs)))
"""


def ppo(bench: Bench, _: str) -> Result:
    """Decisions per second of PPO as `train.py` sets it up."""
    need_cores()
    bench.say("training")
    return learning_rate(QUICK_DECISIONS if bench.quick else DECISIONS)


def start(bench: Bench, cache: str) -> Result:
    """Seconds to the first step, with a filled cache of kernels or a fresh one."""
    bench.say(f"starting with kernels {cache}")
    return start_up(cache == "cached")


def need_cores() -> None:
    """Raise MissingHardwareError where there are fewer than the figure is about."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    if (os.cpu_count() or 1 if cores is None else len(cores)) < CORES:
        raise MissingHardwareError(f"fewer than {CORES} cores")


def set_up(recording: Path | None, profile: Path | None) -> str:
    """Code that makes `model` on that recording and profile, None for those that ship."""
    given = (None if path is None else f"Path({str(path)!r})" for path in (recording, profile))
    return SET_UP.format(**dict(zip(("recording", "profile"), given, strict=True)))


def learning_rate(
    decisions: int, recording: Path | None = None, profile: Path | None = None
) -> Result:
    """Decisions per second over so many, the first two updates left out."""
    code = PPO.format(set_up=set_up(recording, profile), decisions=decisions)
    found = json.loads(run_python(code, CORES))
    rate = found["steps"] / found["seconds"]
    return Result(
        value=rate,
        text=f"{rate:,.0f}",
        note=f"{found['envs']} environments, updates of {found['rollout']} decisions",
        raw=found,
    )


def start_up(cached: bool, recording: Path | None = None, profile: Path | None = None) -> Result:
    """Seconds of a process to the first step of its environment."""
    code = START.format(set_up=set_up(recording, profile))
    with tempfile.TemporaryDirectory() as folder:
        seconds = float(run_python(code, cache=Path(folder)))
        if cached:
            seconds = float(run_python(code, cache=Path(folder)))
    return Result(seconds, f"{seconds:.1f} s")


def run_python(code: str, cores: int | None = None, cache: Path | None = None) -> str:
    """The last line that `code` prints in a process of its own; UnmeasuredError where it fails.

    On the first `cores` of this process's, with Numba's cache in the folder `cache`.
    """
    environment = dict(os.environ)
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    if cores is not None and hasattr(os, "sched_getaffinity"):
        allowed = sorted(os.sched_getaffinity(0))[:cores]
        code = f"import os\nos.sched_setaffinity(0, {allowed})\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise UnmeasuredError(f"the process failed: {last}")
    return done.stdout.strip().splitlines()[-1]
