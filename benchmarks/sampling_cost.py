"""What sampling costs beside greedy decoding: the same steps with and without noise and filters.

The requests are read once and then decode together; sampled and greedy steps follow each other in
pairs, so that both meet the same contexts and whatever else the machine is doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.bench import Bench
from benchmarks.decoding import requests_of, start
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.speed import split_prompts
from engine.loop import Engine
from engine.sampling.params import GREEDY, SamplingParams
from policies.registry import make

BATCH = 16
TREE = "eagle3(3,2,4)"
ROUNDS = 24
QUICK_ROUNDS = 8
SAMPLED = SamplingParams(temperature=1.0, top_p=0.9)
KINDS = {"greedy": GREEDY, "sampled": SAMPLED}
SKIPPED = 1  # rounds at the beginning
MOST_EMITTED = 4  # tokens of a request in an iteration of that tree, bonus included


def cost(bench: Bench, sets: str) -> Result:
    """Verification at temperature 1 and top-p 0.9 over greedy verification, batch 16."""
    names = sets.split()
    prompts = [p for _, p in split_prompts(bench, names, BATCH // len(names), 0)[0]]
    seconds, nodes = _in_rounds(bench, prompts, QUICK_ROUNDS if bench.quick else ROUNDS)
    greedy, sampled = median(seconds["greedy"]), median(seconds["sampled"])
    by_round = sorted(s / g for s, g in zip(seconds["sampled"], seconds["greedy"], strict=True))
    quarter = len(by_round) // 4
    return Result(
        value=sampled / greedy,
        text=f"{sampled / greedy:.2f}×",
        note=f"verification of {median(nodes['sampled']):.0f} nodes {1e3 * sampled:.0f} against "
        f"{1e3 * greedy:.0f} ms; round by round {median(by_round):.2f}×, half of them within "
        f"{by_round[quarter]:.2f} to {by_round[-1 - quarter]:.2f}",
        raw={"tree": TREE, "batch": len(prompts), "verify_ms": {"greedy": 1e3 * greedy,
             "sampled": 1e3 * sampled}, "by_round": by_round, "nodes": nodes},
    )  # fmt: skip


def _in_rounds(
    bench: Bench, prompts: Sequence[list[int]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    """Verification times and verified nodes, by kind; a round is a step of each."""
    seconds: dict[str, list[float]] = {name: [] for name in KINDS}
    nodes: dict[str, list[int]] = {name: [] for name in KINDS}
    tokens = MOST_EMITTED * len(KINDS) * (SKIPPED + rounds) + 1  # so many that no request ends
    requests = requests_of(prompts, tokens)
    engine, driver = start(bench.server, requests, make(TREE), len(requests))
    bench.say(f"sampling: reading {len(requests)} prompts")
    for turn in range(-SKIPPED, rounds):
        for name in KINDS if turn % 2 == 0 else reversed(KINDS):
            view = engine.next_decision()
            if view is None:
                raise UnmeasuredError(f"all requests ended in round {turn + 1}")
            _sample_by(engine, KINDS[name])
            outcome = engine.run_iteration(view, driver)
            if turn >= 0:
                seconds[name].append(outcome.verify_s)
                nodes[name].append(int(outcome.verified.sum()))
        done = f"{turn + 1} of {rounds}" if turn >= 0 else "to warm up"
        bench.say(f"sampling: round {done}")
    return seconds, nodes


def _sample_by(engine: Engine, params: SamplingParams) -> None:
    """Give all running requests these parameters from the next step on."""
    for slot, request in engine.ledger.running.items():
        request.sampling = params
        engine.backend.admit(slot, request)
