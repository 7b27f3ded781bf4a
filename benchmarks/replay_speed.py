"""Environment steps a second on replay, on one core: what a trainer gets, without the trainer.

Steps of one iteration through the registered vector environment, observations, rewards and infos
included, and so is drawing and beginning the next episode whenever one is over. The best of several
rounds counts, since whatever else the machine does only slows one.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import Result
from engine.classes import DEFAULT_CLASSES
from engine.replay.server import ReplayConfig, ReplayServer
from engine.workload import WorkloadConfig
from envs.episodes import ReplayEpisodes
from envs.fleet import ServeFleet
from envs.vector import ServeVectorEnv
from policies.actions import ActionTable

REPLICAS = 64
DEPTH, WIDTH, NODES = 4, 4, 16
BUDGET_NODES = 64  # of a batch of 16 that asks for 256
ROUNDS, ROUND_STEPS, QUICK_ROUND_STEPS = 5, 200_000, 40_000
LEAST_RUNNING = 15.0
# More than any tree can serve, so that a queue keeps all slots busy to the end of a trace.
WORK = WorkloadConfig(name="busy", duration_s=120.0, load=3.0)


def server_of(bench: Bench) -> ReplayServer:
    """The recording and the profile that ship with DraftGym."""
    bench.say("loading the recording")
    return ReplayServer.load(ReplayConfig())


def fixed_tree(bench: Bench, _: str) -> Result:
    """64 replicas under one tree for all."""
    return _result(bench, REPLICAS, None)


def under_budget(bench: Bench, _: str) -> Result:
    """64 replicas whose batches keep the likeliest nodes under a budget that binds."""
    return _result(bench, REPLICAS, BUDGET_NODES)


def single(bench: Bench, _: str) -> Result:
    """One environment: a fleet of one replica."""
    return _result(bench, 1, None)


def _result(bench: Bench, replicas: int, budget: int | None) -> Result:
    return measured(server_of(bench), replicas, budget, bench.quick)


def measured(server: ReplayServer, replicas: int, budget: int | None, quick: bool) -> Result:
    """Steps per second of so many environments, as a figure."""
    table = ActionTable(DEFAULT_CLASSES.names)
    env = ServeVectorEnv(ServeFleet(ReplayEpisodes(server, workload=WORK), replicas, table))
    tree = table.depths.index(DEPTH), table.widths.index(WIDTH), table.nodes.index(NODES), 0
    actions = np.tile(np.array(tree * len(table.class_names)), (replicas, 1))
    fleet = env.serving.fleet
    if budget is not None:
        env.serving.plan.node_budget[:] = budget
    env.reset(seed=0)
    env.step(actions)  # compiles
    count = (QUICK_ROUND_STEPS if quick else ROUND_STEPS) // replicas
    if replicas == 1:
        count //= 8  # as long as the others, about
    rates: list[float] = []
    running: list[float] = []
    episodes = 0
    for _ in range(ROUNDS):
        seconds = 0.0
        for step in range(count):
            begun = perf_counter()
            truncated = env.step(actions)[3]
            seconds += perf_counter() - begun
            episodes += int(truncated.sum())
            if step % 16 == 0:
                running.append(float(fleet.state.slots["active"].sum()) / replicas)
        rates.append(count * replicas / seconds)
    busy = float(np.mean(running))
    few = f"only {busy:.1f} requests ran on average" if busy < LEAST_RUNNING else ""
    return Result(
        value=max(rates),
        text=f"{max(rates):,.0f}",
        note=f"{busy:.1f} running, {episodes:,} episodes ended; median {np.median(rates):,.0f}",
        raw={"rates": rates, "running": busy, "episodes": episodes, "replicas": replicas},
        broken=few,
    )
