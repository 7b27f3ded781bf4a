"""The figures that only a card can give, with the shapes of an 8B model and random weights.

Timing needs shapes and not meaning. Each says that the hardware is missing where there is no card.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bench import Bench, Prompts
from benchmarks.decoding import decode_s, iterations, requests_of, start
from benchmarks.figures import MissingHardwareError, Result, UnmeasuredError
from engine.protocol import Controller, Limits, Outcome, Plan, View, uniform_plan
from policies.registry import make

if TYPE_CHECKING:
    from engine.serving import LiveServer

TARGET = "llama-3.1-8b-instruct"
LIMITS = Limits(slots=32)
CAPACITY_TOKENS = 1024
PROMPT_TOKENS = 128
STEPS, QUICK_STEPS = 64, 16
SKIPPED = 3  # first iterations of a run, in which shapes are met for the first time
DEPTH, WIDTH, NODES = 8, 8, 64
BATCH = 32
TREE = "eagle3(3,4,8)"
CEILING_BYTES = 8 * 2**30  # far beyond any cache


def random_8b() -> LiveServer:
    """The server of all these figures; raises MissingHardwareError without a card."""
    import torch

    from engine.serving import LiveServer
    from models.random_weights import pair_of, random_decoder, random_head

    if not torch.cuda.is_available():
        raise MissingHardwareError("no CUDA card on this machine")
    shapes = pair_of(TARGET)
    decoder = random_decoder(shapes.target, torch.bfloat16, torch.device("cuda", 0))
    head = random_head(shapes.head, decoder, torch.bfloat16)
    return LiveServer(decoder, head, None, LIMITS, CAPACITY_TOKENS, f"{TARGET} (random)")


def random_prompts(server: LiveServer, count: int, tokens: int) -> Prompts:
    """Prompts of token ids that mean nothing; the same for every call."""
    high = server.decoder.config.vocab_size
    prompts: Prompts = np.random.default_rng(0).integers(0, high, (count, tokens)).tolist()
    return prompts


def one_token_steps(server: LiveServer, steps: int, prompt_tokens: int) -> list[Outcome]:
    """So many iterations of ordinary decoding at batch 1."""
    requests = requests_of(random_prompts(server, 1, prompt_tokens), steps + SKIPPED)
    engine, driver = start(server, requests, make("autoregressive"), 1)
    return list(iterations(engine, driver))[SKIPPED:]


def step_floor(bench: Bench, _: str) -> Result:
    """Median one-token step, batch 1, over reading the weights once at the measured bandwidth."""
    from benchmarks.card_time import measure_bandwidth

    server = bench.server
    outcomes = one_token_steps(server, QUICK_STEPS if bench.quick else STEPS, PROMPT_TOKENS)
    step = median(decode_s(outcome) for outcome in outcomes)
    n_bytes = server.decoder.weight_bytes()
    bandwidth = measure_bandwidth(server.device, CEILING_BYTES)
    floor = n_bytes / bandwidth.ceiling
    return Result(
        value=step / floor,
        text=f"{step / floor:.2f}×",
        note=f"{1e3 * step:.2f} ms a step, {1e3 * median(o.verify_s for o in outcomes):.2f} ms of "
        f"it the target; {n_bytes / 1e9:.1f} GB at {bandwidth.ceiling / 1e12:.2f} TB/s take "
        f"{1e3 * floor:.2f} ms",
        raw={
            "step_ms": 1e3 * step,
            "floor_ms": 1e3 * floor,
            "weight_bytes": n_bytes,
            "read_bytes_per_s": bandwidth.read,
            "copied_bytes_per_s": bandwidth.copied,
            "steps": len(outcomes),
        },
    )


class Listed(Controller):
    """Goes through a list of trees of so many nodes, 0 for ordinary decoding."""

    name = "listed"

    def __init__(self, nodes: list[int]) -> None:
        self.nodes, self.next = nodes, 0

    def plan(self, view: View) -> Plan:
        """The next of the list."""
        nodes = self.nodes[self.next % len(self.nodes)]
        self.next += 1
        return uniform_plan(view.limits, DEPTH if nodes else 0, WIDTH, nodes)


def tree_verification(bench: Bench, _: str) -> Result:
    """Median verification of a tree of 64 nodes over that of one token, batch 1, taken in turns.

    The root comes on top. A tree of a node less, which with its root fills a captured size, is in
    the note: the step between the two is the padding's.
    """
    server = bench.server
    each = QUICK_STEPS if bench.quick else STEPS
    rng = bench.rng()
    kinds = [0, NODES - 1, NODES]
    nodes = [n for _ in range(each + SKIPPED) for n in rng.permutation(kinds).tolist()]
    tokens = (DEPTH + 1) * (len(nodes) + 1)  # no answer may end, and no tree be cut by its end
    room = server.settings.context_tokens - PROMPT_TOKENS
    requests = requests_of(random_prompts(server, 8, PROMPT_TOKENS), min(tokens, room - 1))
    engine, driver = start(server, requests, Listed(nodes), 1)
    seen: dict[int, list[float]] = {1: [], NODES: [], NODES + 1: []}
    for number, outcome in enumerate(iterations(engine, driver)):
        verified = int(outcome.verified.sum())
        if number >= 3 * SKIPPED and verified in seen:
            seen[verified].append(outcome.verify_s)
        if min(map(len, seen.values())) >= each:
            break
    if not all(seen.values()):
        raise UnmeasuredError(f"no tree of {NODES} nodes was verified beside a single token")
    one, smaller, tree = (median(times) for times in seen.values())
    return Result(
        value=tree / one,
        text=f"{tree / one:.2f}×",
        note=f"{1e3 * tree:.2f} against {1e3 * one:.2f} ms; {NODES - 1} nodes {smaller / one:.2f}×",
        raw={
            "tree_ms": 1e3 * tree,
            "one_node_less_ms": 1e3 * smaller,
            "one_token_ms": 1e3 * one,
            "each": each,
            "nodes": NODES,
        },
    )


def overhead(bench: Bench, _: str) -> Result:
    """Share of an iteration, prefill aside, in which the card runs no kernel, batch 32.

    Iterations are timed as they are, and kernels in further ones under a profiler, which slows
    their launching and not them.
    """
    from benchmarks.card_time import busy_time

    server = bench.server
    count = QUICK_STEPS if bench.quick else STEPS
    timed = list(full_iterations(server, count))
    watched = full_iterations(server, count + 1)
    next(watched)  # by then prompts are read and shapes are met
    with busy_time(server.device) as busy:
        seen = len(list(watched))
    whole_s = float(np.mean([decode_s(outcome) for outcome in timed]))
    kernels_s = busy.seconds / seen
    share = 1 - kernels_s / whole_s
    return Result(
        value=100 * share,
        text=f"{100 * share:.1f} %",
        note=f"{TREE}: {1e3 * (whole_s - kernels_s):.2f} of {1e3 * whole_s:.2f} ms",
        raw={
            "tree": TREE,
            "batch": BATCH,
            "iterations": len(timed),
            "iteration_ms": 1e3 * whole_s,
            "kernel_ms": 1e3 * kernels_s,
        },
    )


def full_iterations(server: LiveServer, count: int) -> Iterator[Outcome]:
    """So many iterations of `TREE` in which all requests decode.

    Raises UnmeasuredError where fewer do, or drafting fails: what is left is no tree's.
    """
    batch = min(BATCH, server.settings.limits.slots)
    # No request may end early: the tree emits four tokens an iteration at most.
    requests = requests_of(random_prompts(server, batch, PROMPT_TOKENS), 4 * (count + SKIPPED) + 4)
    engine, driver = start(server, requests, make(TREE), batch)
    for number, outcome in enumerate(iterations(engine, driver)):
        if int(outcome.ran.sum()) < batch:
            raise UnmeasuredError(f"iteration {number + 1} had fewer than {batch} requests")
        if failures := engine.counters["draft_failures"]:
            raise UnmeasuredError(f"{failures} draft calls raised by iteration {number + 1}")
        if number >= SKIPPED:
            yield outcome
        if number + 1 == count + SKIPPED:
            return
