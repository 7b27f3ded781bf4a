"""One environment on replay as a process: the same in every one, and how much memory it takes."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.figures import Result
from benchmarks.replay_training import run_python

STEPS = 500

EPISODE = """
import hashlib
import gymnasium
import numpy as np
import envs
env = gymnasium.make(envs.SERVE_ID)
env.action_space.seed(3)
observation, info = env.reset(seed=3)
seen = hashlib.sha256(observation.tobytes())
for _ in range({steps}):
    observation, reward, _, over, info = env.step(env.action_space.sample())
    seen.update(observation.tobytes() + np.float64(reward).tobytes() + repr(info).encode())
    if over:
        break
print(seen.hexdigest())
"""

MEMORY = """
import gymnasium
import envs
from engine.telemetry import resident_bytes
{made}
print(resident_bytes())
"""

ONE = f"""
env = gymnasium.make_vec(envs.SERVE_ID, 1)
env.reset(seed=0)
for _ in range({STEPS}):
    env.step(env.action_space.sample())
"""


def differing_episodes(bench: Bench, _: str) -> Result:
    """Bits by which the digests of one seed's episode differ between two processes."""
    bench.say("two processes")
    first, second = (int(run_python(EPISODE.format(steps=STEPS)), 16) for _ in range(2))
    bits = (first ^ second).bit_count()
    return Result(float(bits), str(bits), note=f"{STEPS} steps, random actions, of their SHA-256")


def memory(bench: Bench, _: str) -> Result:
    """Memory of a process that has served one environment, over one that imports as much.

    What is resident at the end, not the peak: that is inherited from the process that starts them.
    """
    bench.say("two processes")
    imports = "import envs.vector, engine.replay.server, engine.replay.drawing"
    whole, bare = (int(run_python(MEMORY.format(made=made))) / 1e6 for made in (ONE, imports))
    return Result(
        whole - bare,
        f"{whole - bare:.0f} MB",
        note=f"the process holds {whole:.0f} MB, {bare:.0f} of them Python and its libraries",
        raw={"process_mb": whole, "imports_mb": bare},
    )
