"""Text on the device is ordinary decoding's whatever is drafted, under random plans.

Float64 leaves no two tokens near one another, so that text is compared to the last token with the
CPU's; in the format that is timed, rounding may decide, and near ties are told apart.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
import torch

from benchmarks.decoding import Served, requests_of, serve
from benchmarks.gpu_card import random_prompts
from benchmarks.gpu_check.frame import Budget, Findings, failing_drafter
from benchmarks.gpu_check.near_ties import Compared
from benchmarks.gpu_check.parity import difference, read_logits
from benchmarks.gpu_check.subject import Subject
from engine.drafters.build import DRAFTERS
from engine.protocol import Limits
from engine.request import Request
from engine.sampling.params import GREEDY, SamplingParams
from engine.serving import LiveServer
from engine.tiny import tiny_server
from eval.lossless.departures import logits_after
from models.random_weights import CPU
from policies.registry import make
from tests.random_plans import RandomMasks, RandomPlans

VOCAB = 16
LIMITS = Limits(slots=4, max_depth=4, max_width=3, max_nodes=10)
CAPACITY_TOKENS = 96
ANSWER_TOKENS, TINY_ANSWER_TOKENS = 32, 10
RUNS, TINY_RUNS = 30, 2
SEEDS = 3
SAMPLED = SamplingParams(temperature=0.9, top_p=0.9, seed=5)
TREES = ("chain(3)", "eagle3(3,4,8)", "eagle3(6,8,32)")
TREE_REQUESTS, TREE_TOKENS, TINY_TREE_TOKENS = 8, 48, 12


def lossless(subject: Subject, budget: Budget) -> Findings:
    """Tiny networks in float64 under every drafter, then the small pair as it is timed."""
    table, wrong = [["network", "drafter or tree", "requests with the same text"]], []
    for drafter in DRAFTERS:
        if budget.allows(f"random plans with {drafter}"):
            same, total, failures = under_random_plans(drafter, subject, budget)
            table.append(["tiny, float64", drafter, f"{same} of {total}"])
            if same < total:
                wrong.append(f"{drafter} in float64: {total - same} of {total} texts differ")
            wrong += [f"{drafter} in float64: {line}" for line in failing_drafter(failures)]
    if budget.allows("trees of the small pair"):
        for tree, compared in of_trees(subject).items():
            table.append([subject.names["small"], tree, str(compared)])
            wrong += [f"{tree}: {line}" for line in compared.wrong]
    return Findings("every text against ordinary decoding", table, wrong)


def under_random_plans(drafter: str, subject: Subject, budget: Budget) -> tuple[int, int, int]:
    """Requests whose text is the CPU's ordinary decoding's, how many there were, failed drafts."""
    runs, tokens = (TINY_RUNS, TINY_ANSWER_TOKENS) if subject.tiny else (RUNS, ANSWER_TOKENS)
    servers = {
        where: tiny_server(0, VOCAB, "float64", LIMITS, CAPACITY_TOKENS, drafter, device=where)
        for where in {"cpu", subject.device.type}
    }
    wanted = [texts(servers["cpu"], seed, tokens)[0] for seed in range(min(runs, SEEDS))]
    same = total = failures = 0
    for run, seed in zip(range(runs), cycle(range(len(wanted))), strict=False):
        if run and not budget.allows(f"runs {run + 1} to {runs} with {drafter}"):
            break
        found, failed = texts(servers[subject.device.type], seed, tokens, run)
        same += sum(a == b for a, b in zip(found, wanted[seed], strict=True))
        total += len(found)
        failures += failed
    return same, total, failures


def texts(
    server: LiveServer, seed: int, tokens: int, plans: int | None = None
) -> tuple[list[list[int]], int]:
    """Answers to the prompts of a seed, half of them sampled, and how many draft calls raised.

    `plans` None is ordinary decoding.
    """
    rng = np.random.default_rng(seed)
    requests = [
        Request(
            i,
            0,
            rng.integers(0, VOCAB, rng.integers(1, 20)).tolist(),
            tokens,
            0.0,
            sampling=SAMPLED if i % 2 else GREEDY,
        )
        for i in range(6)
    ]
    controller = make("autoregressive")
    if plans is not None:
        kind = RandomMasks if plans % 2 else RandomPlans
        controller = kind(np.random.default_rng(plans))
    engine = server.engine(requests)
    engine.serve(controller)
    return [list(request.output) for request in requests], engine.counters["draft_failures"]


def of_trees(subject: Subject) -> dict[str, Compared]:
    """Greedy answers of the small pair under each tree against its own ordinary decoding."""
    server = subject.small
    reference = subject.small_in(torch.float32, CPU).decoder
    error = difference(read_logits(server.decoder), read_logits(reference)).largest
    running = min(TREE_REQUESTS, server.settings.limits.slots)
    prompts = random_prompts(server, running, 24)
    tokens = TINY_TREE_TOKENS if subject.tiny else TREE_TOKENS

    def served(spec: str) -> Served:
        return serve(server, requests_of(prompts, tokens), make(spec), running)

    wanted = served("autoregressive").outputs
    found: dict[str, Compared] = {}
    for tree in TREES:
        found[tree], drafted = Compared(), served(tree)
        found[tree].draft_failures = drafted.draft_failures
        for prompt, text, other in zip(prompts, wanted, drafted.outputs, strict=True):
            found[tree].add(prompt, text, other, lambda t: logits_after(reference, list(t)), error)
    return found
