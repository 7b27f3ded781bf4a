"""Compile the kernels that most test files call, once, for all later processes: a cache on disk.

Two workers with an empty cache would each compile the same ones at the same time. `make test` runs
`recording` while the type checker has the other core, and `live` on whichever core is free first.
No test relies on it: what is not called here is compiled, and kept, where it is first called.
"""

from __future__ import annotations

import sys

import gymnasium
import numpy as np

import envs
from engine.replay.fleet.fleet import Fleet
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
    """Make the tiny recording, serve it one engine at a time, as a fleet, and that under a plan.

    The engine first: by the time that `live` begins, the kernels that both call are there.
    """
    server = replay_server()
    server.engine(asked(6)).serve(make("eagle3"))
    fleet = gymnasium.make_vec(envs.SERVE_ID, 2, server=server, workload=WORK)
    fleet.action_space.seed(0)
    fleet.reset(seed=0)
    for _ in range(20):
        fleet.step(fleet.action_space.sample())
    alone = Fleet(server, 2)
    alone.begin(0, asked(6))
    alone.serve(alone.plan(2, 2, 4))


if __name__ == "__main__":
    for name in sys.argv[1:] or ("recording", "live"):
        {"recording": serve_a_recording, "live": serve_live}[name]()
