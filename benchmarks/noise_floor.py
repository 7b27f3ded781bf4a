"""How many final answers a number format alone changes: the floor under what a margin gives up.

The prompts of AdaptiveSpec's frontier are answered greedily in float32 and in bfloat16, eight at a
time, and answers compared as the frontier compares them; why two formats, says
`eval.lossless.other_format`. Where two texts part, the gap between the two likeliest tokens in
float32 is the log-ratio that bfloat16 gave up there.
"""

from __future__ import annotations

from contextlib import closing

import numpy as np
import torch

from benchmarks.adaptivespec_live import QUICK_TOKENS, TOKENS, kept, reported_prompts
from benchmarks.bench import Bench, Prompts
from benchmarks.decoding import requests_of, serve
from benchmarks.figures import Result
from engine.serving import LiveServer
from eval.lossless.departures import common, top_gap
from eval.lossless.other_format import in_format
from policies.registry import make

BATCH = 8
ORDINARY = "autoregressive"


def floor(bench: Bench, _: str) -> Result:
    """Share of final answers that the other format keeps."""
    reported_on, _chosen_on = reported_prompts(bench, BATCH)
    names, prompts = [name for name, _ in reported_on], [prompt for _, prompt in reported_on]
    server = bench.server
    is_exact = server.decoder.dtype != torch.bfloat16
    bench.say("noise floor: in the format of this run")
    here = answers(bench, server, prompts)
    bench.say("noise floor: loading the other format")
    with closing(in_format(server, torch.bfloat16 if is_exact else torch.float32, BATCH)) as other:
        bench.say("noise floor: in the other format")
        there = answers(bench, other, prompts)
        exact, lossless, rounded = (server, here, there) if is_exact else (other, there, here)
        share = kept(bench, lossless, rounded, names)
        parted, compared = [], 0
        for prompt, one, two in zip(prompts, lossless, rounded, strict=True):
            same = common(one, two)
            compared += same
            if same < min(len(one), len(two)):
                compared += 1
                parted.append(top_gap(exact.decoder, prompt + one[:same]))
    mean_gap = float(np.mean(parted)) if parted else 0.0
    return Result(
        share,
        f"{100 * share:.0f} % of {len(prompts)}",
        note=f"{len(parted)} texts part, {100 * len(parted) / max(compared, 1):.1f} % of "
        f"{compared:,} tokens up to there; log-ratio {mean_gap:.3f} given up on average, "
        f"{max(parted, default=0.0):.3f} at most",
        raw={"kept": share, "gaps": parted, "compared_tokens": compared, "prompts": len(prompts)},
    )


def answers(bench: Bench, server: LiveServer, prompts: Prompts) -> Prompts:
    """Greedy, `BATCH` at a time, as long as the frontier's."""
    tokens = QUICK_TOKENS if bench.quick else TOKENS
    found: Prompts = []
    for i in range(0, len(prompts), BATCH):
        requests = requests_of(prompts[i : i + BATCH], tokens, bench.stop_ids)
        found += serve(server, requests, make(ORDINARY), len(requests)).outputs
    return found
