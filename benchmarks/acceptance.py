"""How many tokens an iteration emits with the draft head, on held-out prompts and a live engine.

Emitted ÷ iterations counts request-iterations, the bonus token included; the first token of an
answer comes from prefill and is left out. Answers are cut after 192 tokens; a set that runs out
of prompts goes on with its unfinished answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks import ratios
from benchmarks.bench import Bench
from benchmarks.decoding import iterations, requests_of, start
from benchmarks.figures import Result, UnmeasuredError
from engine.protocol import Ints
from policies.registry import make

TREE = "eagle3(6,8,32)"
RUNNING = 16
ANSWER_TOKENS = 192
ITERATIONS = 5000
QUICK_ITERATIONS = 600
LOOP_TOKENS = 24  # so many tokens said again are a loop, as in models.distill
LONGEST_LOOP = 96


@dataclass
class Answer:
    """What a prompt was answered so far, and what each iteration emitted."""

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # answer tokens before the iteration
    emitted: list[int] = field(default_factory=list)


@dataclass
class Tally:
    """Answers of a set, and how often each position was offered and accepted."""

    answers: list[Answer]
    proposed: Ints
    accepted: Ints
    count: int = 0


def measure(bench: Bench, name: str) -> Result:
    """Tokens per request-iteration on the set `name`, with a 95 % interval over prompts."""
    wanted = QUICK_ITERATIONS if bench.quick else ITERATIONS
    tally = collect(bench, name, bench.prompts(name), wanted)
    served = [answer for answer in tally.answers if answer.emitted]
    emitted = np.array([sum(a.emitted) for a in served], float)
    counts = np.array([len(a.emitted) for a in served], float)
    if not served:
        raise UnmeasuredError(f"{name}: no prompt was answered with more than one token")
    ratio = ratios.of_sums(emitted, counts, bench.rng())
    fresh = [n for a in served for n in before_loop(a)]
    looping = 1.0 - len(fresh) / counts.sum()
    done = int(counts.sum())
    short = done < wanted
    return Result(
        value=ratio.value,
        text=f"{ratio} ({done:,} iterations)",
        note=f"{looping:.0%} of iterations in text that repeats itself; without them "
        f"{np.mean(fresh) if fresh else float('nan'):.2f}",
        broken=f"the set is exhausted after {done:,} of {wanted:,} iterations" if short else "",
        raw={
            "tree": TREE,
            "emitted_tokens": int(emitted.sum()),
            "request_iterations": done,
            "prompts": len(served),
            "interval_95": [ratio.low, ratio.high],
            "outside_loops": float(np.mean(fresh)) if fresh else None,
            "loop_share": looping,
            "proposed_by_depth": tally.proposed.tolist(),
            "accepted_by_depth": tally.accepted.tolist(),
            "slots": min(RUNNING, bench.server.settings.limits.slots),
            "dtype": str(bench.server.decoder.dtype),
        },
    )


def average(bench: Bench, names: str) -> Result:
    """Mean over the sets, given as figure names with spaces between."""
    rows = {name: bench.rows.get(name) for name in names.split()}
    missing = [name for name, row in rows.items() if row is None or row.number is None]
    if missing:
        raise UnmeasuredError(f"needs {', '.join(missing)}, not measured")
    values = {name: row.number for name, row in rows.items() if row and row.number is not None}
    value = float(np.mean(list(values.values())))
    return Result(value, f"{value:.2f}", raw={"sets": values})


def collect(bench: Bench, name: str, prompts: Sequence[list[int]], wanted: int) -> Tally:
    """Serve prompts, then their unfinished answers, until `wanted` request-iterations are done."""
    server = bench.server
    limits = server.settings.limits
    tally = Tally(
        [Answer(prompt) for prompt in prompts],
        np.zeros(limits.max_depth, np.int64),
        np.zeros(limits.max_depth, np.int64),
    )
    room = server.settings.context_tokens - (ANSWER_TOKENS + 1)
    left = tally.answers
    while tally.count < wanted:
        left = [a for a in left if len(a.prompt) + len(a.tokens) <= room and not _ended(bench, a)]
        if not left:
            break
        _serve(bench, name, left, tally, wanted)
    return tally


def _ended(bench: Bench, answer: Answer) -> bool:
    return bool(answer.tokens) and answer.tokens[-1] in bench.stop_ids


def _serve(bench: Bench, name: str, answers: list[Answer], tally: Tally, wanted: int) -> None:
    server = bench.server
    requests = requests_of([a.prompt + a.tokens for a in answers], ANSWER_TOKENS, bench.stop_ids)
    said = [len(a.tokens) + 1 for a in answers]  # the first token is prefill's
    running = min(RUNNING, server.settings.limits.slots)
    engine, controller = start(server, requests, make(TREE), running)
    for outcome in iterations(engine, controller):
        for slot in np.flatnonzero(outcome.ran).tolist():
            which, emitted = int(engine.slots.request[0, slot]), int(outcome.accepted_length[slot])
            answers[which].starts.append(said[which])
            answers[which].emitted.append(emitted)
            said[which] += emitted
        tally.proposed += outcome.proposed.sum(0)
        tally.accepted += outcome.accepted.sum(0)
        tally.count += int(outcome.ran.sum())
        bench.say(f"{name}: {tally.count:,} of {wanted:,} iterations")
        if tally.count >= wanted:
            break
    engine.close_records()
    for answer, request in zip(answers, requests, strict=True):
        answer.tokens += request.output


def before_loop(answer: Answer) -> list[int]:
    """Tokens emitted by each iteration that began before the answer fell into a loop."""
    end = loop_start(answer.tokens)
    return [n for n, start in zip(answer.emitted, answer.starts, strict=True) if start < end]


def loop_start(tokens: Sequence[int]) -> int:
    """How many tokens stand before the text has said its last 24 twice in a row; all if never."""
    found = len(tokens)
    for period in range(1, min(LONGEST_LOOP, len(tokens)) + 1):
        run = 0
        for i in range(period, found):
            run = run + 1 if tokens[i] == tokens[i - period] else 0
            if run == LOOP_TOKENS:
                found = i + 1
                break
    return found
