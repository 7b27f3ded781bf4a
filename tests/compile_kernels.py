"""Compile the kernels that most test files call, once, for all later processes: a cache on disk.

Two workers with an empty cache would each compile the same ones at the same time. `make test` runs
this while the type checker has the other core. No test relies on it: what is not called here is
compiled, and kept, where it is first called.
"""

from __future__ import annotations

import gymnasium
import numpy as np

import envs
from engine.request import Request
from engine.sampling.params import SamplingParams
from engine.tiny import tiny_server
from policies.registry import make
from tests.replay_episodes import WORK
from tests.tiny_recording import asked, replay_server

SAMPLED = SamplingParams(temperature=0.8, top_p=0.9, repetition_penalty=1.1, seed=5, logprobs=True)


def serve_live() -> None:
    """Requests, every other one sampled, in the number format whose passes are kernels."""
    server = tiny_server(dtype="float32")
    prompts = np.arange(12).reshape(4, 3).tolist()
    requests = [
        Request(i, 0, prompt, 8, 0.0, sampling=SAMPLED if i % 2 else SamplingParams())
        for i, prompt in enumerate(prompts)
    ]
    server.engine(requests).serve(make("eagle3"))


def serve_a_recording() -> None:
    """Make the tiny recording, serve it one engine at a time and as a fleet."""
    server = replay_server()
    server.engine(asked(6)).serve(make("eagle3"))
    fleet = gymnasium.make_vec(envs.SERVE_ID, 2, server=server, workload=WORK)
    fleet.action_space.seed(0)
    fleet.reset(seed=0)
    for _ in range(20):
        fleet.step(fleet.action_space.sample())


if __name__ == "__main__":
    serve_live()
    serve_a_recording()
