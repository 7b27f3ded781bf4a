"""Tokens per second over transformers' own ways to be fast: assisted and batched generation.

Both sides run on the same weights and prompts in the same process, in turns. Theirs is timed
without prefill: a whole answer's time less that of a one-token answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import ratios
from benchmarks.bench import Bench
from benchmarks.decoding import requests_of, serve
from benchmarks.figures import Result
from benchmarks.speed import ORDINARY, TOKENS, TREES, in_turns, rate, split_prompts, warm_up
from policies.registry import make

BATCH = 16
LOOKUPS = (2, 4, 8)  # tokens that transformers' prompt lookup guesses
ROUNDS = 3


def assisted(bench: Bench, sets: str) -> Result:
    """Our best fixed tree over their best prompt lookup; each is chosen on other prompts.

    An assistant model is not tried: nothing smaller shares this target's vocabulary.
    """
    names = sets.split()
    choosing, reporting = (1, 1) if bench.quick else (2, 6)
    chosen_on, reported_on = split_prompts(bench, names, choosing, reporting)
    trees = TREES[:3] if bench.quick else TREES
    model = bench.load_transformers(bench.server)
    warm_up(bench, chosen_on[0][1], trees)
    theirs_s(model, [chosen_on[0][1]], TOKENS // 4, prompt_lookup_num_tokens=2)
    tried = in_turns(bench, "choosing our tree", [[p] for _, p in chosen_on], trees, 1)
    best = max(trees, key=lambda tree: rate(tried[tree]))
    lookups = {
        count: sum(
            theirs_s(model, [p], TOKENS, prompt_lookup_num_tokens=count) for _, p in chosen_on
        )
        for count in LOOKUPS
    }
    lookup = min(LOOKUPS, key=lambda count: lookups[count])
    ours, theirs, plain = [], [], []
    for index, (_, prompt) in enumerate(reported_on):
        bench.say(f"assisted: prompt {index + 1} of {len(reported_on)}")
        for mine in (True, False) if index % 2 == 0 else (False, True):
            if mine:
                # No end token: theirs does not stop either.
                ours.append(serve(bench.server, requests_of([prompt], TOKENS), make(best)))
            else:
                theirs.append(theirs_s(model, [prompt], TOKENS, prompt_lookup_num_tokens=lookup))
                plain.append(theirs_s(model, [prompt], TOKENS))
    ratio = ratios.of_rates(
        np.array([s.tokens for s in ours], float),
        np.array([s.seconds for s in ours]),
        np.full(len(theirs), float(TOKENS)),
        np.array(theirs),
        bench.rng(),
    )
    rates = {
        f"draftgym {best}": rate(ours),
        f"transformers prompt lookup {lookup}": TOKENS * len(theirs) / sum(theirs),
        "transformers plain": TOKENS * len(plain) / sum(plain),
    }
    return Result(
        value=ratio.value,
        text=f"{ratio}× with {best}",
        note="; ".join(f"{name} {value:.1f} tokens/s" for name, value in rates.items()),
        raw={
            "tokens_per_s": rates,
            "interval_95": [ratio.low, ratio.high],
            "lookup_seconds": {str(k): v for k, v in lookups.items()},
            "prompts": len(reported_on),
            "new_tokens": TOKENS,
        },
    )


def batched(bench: Bench, sets: str) -> Result:
    """Ordinary decoding of sixteen requests here over transformers' padded batch."""
    names = sets.split()
    each = BATCH // len(names)
    prompts = [p for _, p in split_prompts(bench, names, each, 0)[0]]
    tokens = TOKENS // 4 if bench.quick else TOKENS // 2
    model = bench.load_transformers(bench.server)
    warm_up(bench, prompts[0], (ORDINARY,))
    theirs_s(model, prompts, 2)
    ours, theirs = [], []
    for index in range(1 if bench.quick else ROUNDS):
        bench.say(f"batched: round {index + 1} of {ROUNDS}")
        for mine in (True, False) if index % 2 == 0 else (False, True):
            if mine:
                requests = requests_of(prompts, tokens)
                ours.append(serve(bench.server, requests, make(ORDINARY), BATCH))
            else:
                theirs.append(theirs_s(model, prompts, tokens))
    here = sum(s.full_tokens for s in ours) / sum(s.full_seconds for s in ours)
    total = tokens * len(prompts)
    there = total * len(theirs) / sum(theirs)
    by_round = [s.full_tokens_per_s * t / total for s, t in zip(ours, theirs, strict=True)]
    return Result(
        value=here / there,
        text=f"{here / there:.2f}×",
        note=f"{here:.1f} against {there:.1f} tokens/s; by round "
        + ", ".join(f"{r:.2f}×" for r in by_round),
        raw={
            "tokens_per_s": {"draftgym": here, "transformers": there},
            "by_round": by_round,
            "requests": len(prompts),
            "new_tokens": tokens,
        },
    )


def theirs_s(model: Any, prompts: Sequence[list[int]], tokens: int, **how: Any) -> float:
    """Seconds in which transformers writes `tokens` more after the first, for all prompts."""
    return _generate_s(model, prompts, tokens + 1, how) - _generate_s(model, prompts, 1, how)


def _generate_s(model: Any, prompts: Sequence[list[int]], count: int, how: dict[str, Any]) -> float:
    import torch

    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    seen = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    begun = perf_counter()
    with torch.inference_mode():
        model.generate(ids, attention_mask=seen, min_new_tokens=count, max_new_tokens=count, **how)
    return perf_counter() - begun
