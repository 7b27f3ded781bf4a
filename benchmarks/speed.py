"""Tokens per second of fixed trees over ordinary decoding, and of that over transformers.

Everything that is compared runs in the same process, on the same prompts, in turns whose order
rotates, so that a drifting machine hits all alike. The best tree is chosen on prompts other than
those it is reported on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from benchmarks import ratios
from benchmarks.bench import Bench, Prompts, transformers_reference
from benchmarks.decoding import Served, requests_of, serve
from benchmarks.figures import Result
from policies.registry import make

SETS = ("gsm8k", "humaneval")  # maths and coding
ORDINARY = "autoregressive"
TREES = (
    *("chain(2)", "chain(3)", "eagle3(3,2,3)", "eagle3(3,2,5)", "eagle3(4,3,5)"),
    *("eagle3(4,4,8)", "eagle3(5,4,8)", "eagle3(6,8,32)"),
)
QUICK_TREES = ("chain(3)", "eagle3(3,2,4)", "eagle3(4,4,8)")
BATCH_TREES = ("chain(1)", "chain(2)", "chain(3)", "eagle3(2,2,2)", "eagle3(3,2,4)")
QUICK_BATCH_TREES = ("chain(2)", "chain(3)")
TOKENS = 64
BATCH = 8
WARM_TOKENS = 6
# prompt and count to the seconds for so many tokens after the first, and the whole answer
PeerAnswer = Callable[[list[int], int], tuple[float, list[int]]]


def batch1(bench: Bench, sets: str) -> Result:
    """Best fixed tree over ordinary decoding, one request at a time."""
    names = sets.split()
    trees = QUICK_TREES if bench.quick else TREES
    choosing, reporting = (1, 2) if bench.quick else (3, 10)
    chosen_on, reported_on = split_prompts(bench, names, choosing, reporting)
    warm_up(bench, chosen_on[0][1], (ORDINARY, *trees))
    tried = in_turns(bench, "choosing a tree", [[p] for _, p in chosen_on], trees, 1)
    best = max(trees, key=lambda tree: rate(tried[tree]))
    runs = in_turns(
        bench, f"{best} against ordinary", [[p] for _, p in reported_on], (ORDINARY, best), 1
    )
    ours, theirs = runs[best], runs[ORDINARY]
    ratio = _ratio(bench, ours, theirs)
    by_set = {
        name: rate([s for s, (of, _) in zip(ours, reported_on, strict=True) if of == name])
        / rate([s for s, (of, _) in zip(theirs, reported_on, strict=True) if of == name])
        for name in names
    }
    return Result(
        value=ratio.value,
        text=f"{ratio}× with {best}",
        note=f"{rate(ours):.1f} against {rate(theirs):.1f} tokens/s; "
        + ", ".join(f"{name} {value:.2f}×" for name, value in by_set.items())
        + f"; same text {_same(ours, theirs)}",
        raw={
            "best": best,
            "tokens_per_s": {best: rate(ours), ORDINARY: rate(theirs)},
            "tokens_per_iteration": sum(s.tokens for s in ours) / sum(s.iterations for s in ours),
            "interval_95": [ratio.low, ratio.high],
            "by_set": by_set,
            "tried_tokens_per_s": {tree: rate(tried[tree]) for tree in trees},
            "prompts": {"choosing": len(chosen_on), "reporting": len(reported_on)},
            "new_tokens": TOKENS,
            "same_text": _same(ours, theirs),
            **_machine(bench),
        },
    )


def batch8(bench: Bench, sets: str) -> Result:
    """Best fixed tree over ordinary decoding, eight requests decoding together.

    Sixteen requests are served through eight slots; what counts are the iterations with all eight
    busy, since the ends of the two runs differ in how many still decode.
    """
    names = sets.split()
    trees = QUICK_BATCH_TREES if bench.quick else BATCH_TREES
    each, rounds = (4, 1) if bench.quick else (8, 2)
    chosen_on, reported_on = split_prompts(bench, names, each, each)
    first, second = [p for _, p in chosen_on], [p for _, p in reported_on]
    tried = in_turns(bench, "choosing a tree", [first], trees, BATCH)
    best = max(trees, key=lambda tree: full_rate(tried[tree]))
    runs = in_turns(bench, f"{best} against ordinary", [second] * rounds, (ORDINARY, best), BATCH)
    ours, theirs = runs[best], runs[ORDINARY]
    value = full_rate(ours) / full_rate(theirs)
    by_round = [
        a.full_tokens_per_s / b.full_tokens_per_s for a, b in zip(ours, theirs, strict=True)
    ]
    return Result(
        value=value,
        text=f"{value:.2f}× with {best}",
        note=f"{full_rate(ours):.1f} against {full_rate(theirs):.1f} tokens/s with all eight busy; "
        f"{rate(ours) / rate(theirs):.2f}× with the ends; by round "
        + ", ".join(f"{r:.2f}×" for r in by_round),
        raw={
            "best": best,
            "tokens_per_s": {best: full_rate(ours), ORDINARY: full_rate(theirs)},
            "tokens_per_s_with_ends": {best: rate(ours), ORDINARY: rate(theirs)},
            "full_iterations": {best: [s.full_iterations for s in ours]}
            | {ORDINARY: [s.full_iterations for s in theirs]},
            "by_round": by_round,
            "tried_tokens_per_s": {tree: full_rate(tried[tree]) for tree in trees},
            "requests": len(second),
            "new_tokens": TOKENS,
            "same_text": _same(ours, theirs),
            **_machine(bench),
        },
    )


def transformers(bench: Bench, sets: str) -> Result:
    """Ordinary decoding here over transformers' generate, batch 1, both without prefill.

    Theirs is the time of a whole answer less that of a one-token answer, taken in the same turn.
    """
    each = 2 if bench.quick else 4
    prompts = [p for _, p in split_prompts(bench, sets.split(), each, 0)[0]]
    generate = transformers_reference(bench.load_transformers(bench.server))
    generate(prompts[0], WARM_TOKENS)

    def answer(prompt: list[int], tokens: int) -> tuple[float, list[int]]:
        begun = perf_counter()
        generate(prompt, 1)
        first_s = perf_counter() - begun
        begun = perf_counter()
        tokens_out = generate(prompt, tokens + 1)
        return perf_counter() - begun - first_s, tokens_out

    return ordinary_over(bench, "transformers", prompts, answer)


def ordinary_over(
    bench: Bench, name: str, prompts: Sequence[list[int]], theirs: PeerAnswer
) -> Result:
    """Ordinary decoding here over a peer's, batch 1, in turns; neither stops at an end token.

    `theirs` answers a prompt with so many tokens after the first: their seconds, and all tokens.
    """
    tokens = TOKENS // 2 if bench.quick else TOKENS
    warm_up(bench, prompts[0], (ORDINARY,))
    ours_s, theirs_s, same = [], [], 0
    for index, prompt in enumerate(prompts):
        bench.say(f"{name}: prompt {index + 1} of {len(prompts)}")
        answers: dict[bool, list[int]] = {}
        for ours in (True, False) if index % 2 == 0 else (False, True):
            if ours:
                served = serve(bench.server, requests_of([prompt], tokens), make(ORDINARY))
                ours_s.append(served.seconds)
                answers[ours] = served.outputs[0]
            else:
                seconds, answers[ours] = theirs(prompt, tokens)
                theirs_s.append(seconds)
        same += answers[True] == answers[False]
    counts = np.full(len(prompts), float(tokens))
    ratio = ratios.of_rates(counts, np.array(ours_s), counts, np.array(theirs_s), bench.rng())
    here, there = counts.sum() / sum(ours_s), counts.sum() / sum(theirs_s)
    return Result(
        value=ratio.value,
        text=f"{ratio}×",
        note=f"{here:.1f} against {there:.1f} tokens/s; same text {same} of {len(prompts)}",
        raw={
            "tokens_per_s": {"draftgym": here, name: there},
            "interval_95": [ratio.low, ratio.high],
            "decode_seconds": {"draftgym": ours_s, name: theirs_s},
            "prompts": len(prompts),
            "new_tokens": tokens,
            "same_text": f"{same} of {len(prompts)}",
            **_machine(bench),
        },
    )


def split_prompts(
    bench: Bench, names: Sequence[str], first: int, second: int
) -> tuple[list[tuple[str, list[int]]], list[tuple[str, list[int]]]]:
    """Per set `first` prompts and `second` others, each with its set's name; sets alternate."""
    sets = {name: bench.prompts(name, first + second) for name in names}
    one = [(name, sets[name][i]) for i in range(first) for name in names]
    two = [(name, sets[name][i]) for i in range(first, first + second) for name in names]
    return one, two


def warm_up(bench: Bench, prompt: list[int], controllers: Sequence[str]) -> None:
    """A few tokens of each, so that no measurement meets a shape for the first time."""
    for spec in controllers:
        serve(bench.server, requests_of([prompt], WARM_TOKENS), make(spec))


def in_turns(
    bench: Bench, doing: str, groups: Sequence[Prompts], controllers: Sequence[str], running: int
) -> dict[str, list[Served]]:
    """Serve each group of prompts under each controller; who goes first rotates by group."""
    found: dict[str, list[Served]] = {spec: [] for spec in controllers}
    total = len(groups) * len(controllers)
    for index, prompts in enumerate(groups):
        shift = index % len(controllers)
        for place, spec in enumerate((*controllers[shift:], *controllers[:shift])):
            bench.say(f"{doing}: {index * len(controllers) + place + 1} of {total}")
            requests = requests_of(prompts, TOKENS, bench.stop_ids)
            found[spec].append(serve(bench.server, requests, make(spec), running))
    return found


def rate(runs: Sequence[Served]) -> float:
    """Tokens per second of decode time over all runs."""
    return sum(s.tokens for s in runs) / sum(s.seconds for s in runs)


def full_rate(runs: Sequence[Served]) -> float:
    """The same over iterations with all slots busy; nan where there was none."""
    seconds = sum(s.full_seconds for s in runs)
    return sum(s.full_tokens for s in runs) / seconds if seconds else float("nan")


def _ratio(bench: Bench, ours: Sequence[Served], theirs: Sequence[Served]) -> ratios.Ratio:
    columns = [
        np.array([getattr(s, name) for s in runs], float)
        for runs in (ours, theirs)
        for name in ("tokens", "seconds")
    ]
    return ratios.of_rates(columns[0], columns[1], columns[2], columns[3], bench.rng())


def _same(ours: Sequence[Served], theirs: Sequence[Served]) -> str:
    """Trees change no text but where rounding decides between two tokens."""
    pairs = [
        pair
        for a, b in zip(ours, theirs, strict=True)
        for pair in zip(a.outputs, b.outputs, strict=True)
    ]
    return f"{sum(a == b for a, b in pairs)} of {len(pairs)}"


def _machine(bench: Bench) -> dict[str, object]:
    import torch

    return {"dtype": str(bench.server.decoder.dtype), "threads": torch.get_num_threads()}
