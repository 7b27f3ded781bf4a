"""Tokens per second of ordinary decoding, chains, trees and every named controller, by batch."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.decoding import decode_s, iterations, requests_of
from benchmarks.gpu_card import random_prompts
from benchmarks.gpu_check.frame import Budget, Findings, failing_drafter, reason
from benchmarks.gpu_check.scripted import CHANCES, Script, scripted
from benchmarks.gpu_check.subject import Subject
from engine.serving import LiveServer
from policies.registry import make, names

FIXED = (
    *("autoregressive", "chain(2)", "chain(4)"),
    *("eagle3(3,4,8)", "eagle3(5,8,32)", "eagle3(8,8,64)"),
)
PROMPT_TOKENS = 64
ITERATIONS, TINY_ITERATIONS = 40, 6
FEWEST = 5  # below which a cell says nothing
SKIPPED = 3
CUT, BROKEN = "cut", "failed"


def small(subject: Subject, budget: Budget) -> Findings:
    """With the small pair."""
    return throughput(subject.small, subject, budget)


def large(subject: Subject, budget: Budget) -> Findings:
    """With the large pair."""
    return throughput(subject.large, subject, budget)


def controllers() -> list[str]:
    """The fixed trees, and everything in the registry that needs no argument."""
    plain = {"autoregressive", "chain", "eagle3"}  # among the fixed ones, with arguments
    return [*FIXED, *(name for name in names() if name not in plain)]


def throughput(server: LiveServer, subject: Subject, budget: Budget) -> Findings:
    """Every controller at every batch; who raises is told, and the next one goes on."""
    batches, most = subject.batches, TINY_ITERATIONS if subject.tiny else ITERATIONS
    table = [["controller", *(f"batch {batch}" for batch in batches)]]
    wrong: list[str] = []
    specs = controllers()
    cells, done = len(specs) * len(batches), 0
    with scripted(server) as script:
        for spec in specs:
            row = [spec]
            for batch in batches:
                share_s = budget.left_s / (cells - done)
                done += 1
                if not budget.allows(f"{spec} at batch {batch}"):
                    row.append(CUT)
                    continue
                try:
                    row.append(cell(server, script, spec, batch, most, share_s))
                except Exception as error:  # whatever it raises, the next one is measured
                    row.append(BROKEN)
                    wrong.append(f"{spec} at batch {batch}: {reason(error)}")
            table.append(row)
    ranks = ", ".join(f"{chance:g}" for chance in CHANCES[0])
    return Findings(
        f"{server.describe()}; decode tokens/s and, in brackets, tokens a request and iteration; "
        f"the right token is the drafter's child of rank 1, 2, … with probability {ranks}",
        table,
        wrong,
    )


def cell(
    server: LiveServer, script: Script, spec: str, batch: int, most: int, seconds: float
) -> str:
    """Tokens per second with `batch` requests decoding together.

    Over `most` iterations, or over about `seconds`, if that is less.
    """
    depth = server.settings.limits.max_depth
    room = server.settings.context_tokens - PROMPT_TOKENS - 1
    tokens = min(room, (most + SKIPPED + 1) * (depth + 1))
    requests = requests_of(random_prompts(server, batch, PROMPT_TOKENS), tokens)
    script.give(requests)
    # All prompts are read before the first step, so nothing but decoding follows.
    settings = replace(server.settings, prefill_tokens=batch * PROMPT_TOKENS)
    engine = server.engine(requests, settings=settings, backend=script.backend)
    controller = make(spec)
    controller.reset(engine.limits)
    emitted, spent_s, count, seen = 0, 0.0, 0, 0
    for outcome in iterations(engine, controller):
        if int(outcome.ran.sum()) < batch:
            continue
        seen += 1
        if seen <= SKIPPED:
            continue
        emitted, count = emitted + int(outcome.accepted_length.sum()), count + 1
        spent_s += decode_s(outcome)
        if count == most or (count >= FEWEST and spent_s > seconds):
            break
    if failed := failing_drafter(engine.counters["draft_failures"]):
        raise ValueError(failed[0])
    if count < FEWEST:
        raise ValueError(f"only {count} iterations had all {batch} requests decoding")
    return f"{emitted / spent_s:,.0f} ({emitted / (count * batch):.2f})"
