"""What sampling costs beside greedy decoding: the same steps with and without noise and filters."""

from __future__ import annotations

from statistics import median

from benchmarks.bench import Bench
from benchmarks.decoding import iterations, requests_of, start
from benchmarks.figures import Result
from benchmarks.speed import split_prompts
from engine.request import Request
from engine.sampling.params import GREEDY, SamplingParams
from policies.registry import make

BATCH = 16
TREE = "eagle3(3,2,4)"
TOKENS = 24
QUICK_TOKENS = 8
SAMPLED = SamplingParams(temperature=1.0, top_p=0.9)
SKIPPED = 1


def cost(bench: Bench, sets: str) -> Result:
    """Verification at temperature 1 and top-p 0.9 over greedy verification, batch 16."""
    names = sets.split()
    each = BATCH // len(names)
    prompts = [p for _, p in split_prompts(bench, names, each, 0)[0]]
    tokens = QUICK_TOKENS if bench.quick else TOKENS
    seconds: dict[str, list[float]] = {"greedy": [], "sampled": []}
    nodes: dict[str, list[int]] = {"greedy": [], "sampled": []}
    for turn in range(2 if bench.quick else 4):
        for name in ("greedy", "sampled") if turn % 2 == 0 else ("sampled", "greedy"):
            bench.say(f"sampling: round {turn + 1}, {name}")
            requests = requests_of(prompts, 5 * tokens)
            for request in requests:
                request.sampling = GREEDY if name == "greedy" else SAMPLED
            _time(bench, requests, tokens, seconds[name], nodes[name])
    greedy, sampled = median(seconds["greedy"]), median(seconds["sampled"])
    rows = median(nodes["sampled"])
    return Result(
        value=sampled / greedy,
        text=f"{sampled / greedy:.2f}×",
        note=f"verification of {rows:.0f} nodes {1e3 * sampled:.0f} against {1e3 * greedy:.0f} ms",
        raw={"tree": TREE, "batch": len(prompts), "verify_ms": {"greedy": 1e3 * greedy,
             "sampled": 1e3 * sampled}, "nodes": nodes},
    )  # fmt: skip


def _time(
    bench: Bench, requests: list[Request], wanted: int, seconds: list[float], nodes: list[int]
) -> None:
    """Add verification times of iterations in which all requests decode."""
    engine, driver = start(bench.server, requests, make(TREE), len(requests))
    for number, outcome in enumerate(iterations(engine, driver)):
        if number >= SKIPPED and int(outcome.ran.sum()) == len(requests):
            seconds.append(outcome.verify_s)
            nodes.append(int(outcome.verified.sum()))
        if number >= wanted + SKIPPED:
            break
