"""CUDA graphs: what is captured gives, replayed, what the same pass gives without, and how fast.

On a processor the tape of `models.graph_interpreter` stands in for the card, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
import torch
from torch import Tensor

from benchmarks.card_time import call_times
from benchmarks.gpu_check.frame import Budget, Findings
from benchmarks.gpu_check.parity import difference, tree_sight
from benchmarks.gpu_check.subject import Subject
from models.attention import AttentionBackend
from models.attention_choice import choose_attention
from models.decoder import Decoder
from models.errors import UserError
from models.flashinfer_attention import FlashInferAttention
from models.graph_interpreter import TapeCapturer
from models.graphed import GraphedDecoder, with_graphs
from models.kv_cache import KVCache, TokenBatch
from models.pass_graphs import Capturer, CudaCapturer, GraphPool

MEMORY_BYTES = 4 * 2**30
CONTEXT = 24
# (requests, tokens of each): ordinary decoding, chains and trees, on the tiers and between them.
PASSES = ((1, 1), (1, 5), (1, 64), (1, 65), (7, 1), (8, 5), (32, 1), (32, 9), (64, 1), (64, 9))
TINY_PASSES = ((1, 1), (1, 5), (3, 1), (4, 3))
REPEATS, TINY_REPEATS = 20, 2
ERRORS = {torch.bfloat16: 0.02, torch.float64: 1e-12}


def graphs(subject: Subject, budget: Budget) -> Findings:
    """Passes of the small pair's target; every graph is replayed over other tokens, too."""
    dtype = torch.float64 if subject.device.type == "cpu" else torch.bfloat16
    network, pool = graphed_target(subject, dtype)
    passes = TINY_PASSES if subject.tiny else PASSES
    repeats = TINY_REPEATS if subject.tiny else REPEATS
    most = max(requests for requests, _ in passes)
    page = CONTEXT + max(tokens for _, tokens in passes)
    captured, eager = (network.new_cache(most, page) for _ in range(2))  # graphs: the first's
    caches = [eager, captured]
    table, wrong = [["requests × tokens", "eager", "replayed", "error", "allowed"]], []
    for requests, tokens in passes:
        what = f"{requests} × {tokens}"
        if not budget.allows(f"the pass of {what}"):
            continue
        error = 0.0
        for seed in range(3):  # the first one captures
            fill(caches, seed)
            batch = lay_out(requests, tokens, network.config.vocab_size, seed)
            wanted, got = (run(network, batch, cache) for cache in caches)
            error = max(error, difference(got, wanted).relative)
        before = pool.replays
        times = [
            _milliseconds(partial(network.forward, batch, cache), subject.device, repeats)
            for cache in caches
        ]
        replayed = pool.replays > before
        allowed = ERRORS[dtype]
        table.append(
            [what, f"{times[0]:.2f} ms", f"{times[1]:.2f} ms", f"{error:.2e}", f"{allowed:.0e}"]
        )
        if not error <= allowed:
            wrong.append(f"{what}: replayed logits are {error:.2e} off, allowed {allowed:.0e}")
        if not replayed:
            wrong.append(f"{what}: no graph was replayed ({dict(pool.eager_passes)})")
    return Findings(
        f"{pool.captures} graphs captured, {pool.replays:,} replays, "
        f"{pool.used_bytes / 2**20:,.0f} MiB held",
        table,
        wrong,
    )


def graphed_target(subject: Subject, dtype: torch.dtype) -> tuple[GraphedDecoder, GraphPool]:
    """The small pair's target with graphs of its own, and their pool; raises UserError."""
    capturer: Capturer
    attention: AttentionBackend
    if subject.device.type == "cpu":
        capturer = tape = TapeCapturer()
        attention = FlashInferAttention(tape, subject.device, workspace_bytes=16)
    else:
        if subject.lacking:
            raise UserError(f"graphs are captured around FlashInfer's attention: {subject.lacking}")
        capturer = CudaCapturer(subject.device)
        attention = choose_attention("flashinfer", dtype, subject.device)
    pool = GraphPool(capturer, MEMORY_BYTES)
    network = with_graphs(subject.small_in(dtype, subject.device).decoder, pool)
    network.attention = attention  # its own: the server's holds the server's plans
    return network, pool


def fill(caches: list[KVCache], seed: int) -> None:
    """The same random keys and values in all caches, whatever pages they have besides."""
    pages = min(cache.keys.shape[1] for cache in caches)
    generator = torch.Generator().manual_seed(seed)
    for name in ("keys", "values"):
        stored = [getattr(cache, name) for cache in caches]
        drawn = torch.randn(stored[0][:, :pages].shape, generator=generator)
        for tensor in stored:
            tensor[:, :pages] = drawn.to(tensor.dtype).to(tensor.device)


def lay_out(requests: int, tokens: int, vocab: int, seed: int) -> TokenBatch:
    """So many trees of so many tokens behind contexts of `CONTEXT` tokens; parents are random."""
    rng = np.random.default_rng(seed)
    sights = [
        tree_sight([-1, *(int(rng.integers(0, node)) for node in range(1, tokens))], CONTEXT)
        for _ in range(requests)
    ]
    offsets = torch.arange(tokens).repeat(requests)
    return TokenBatch(
        tokens=torch.from_numpy(rng.integers(0, vocab, requests * tokens)),
        positions=CONTEXT + torch.cat([depth for _, depth in sights]),
        slots=torch.arange(requests).repeat_interleave(tokens),
        rows=CONTEXT + offsets,
        offsets=offsets,
        mask=torch.stack([seen for seen, _ in sights]),
        first_slot=0,
        end_slot=requests,
    )


@torch.inference_mode()
def run(network: Decoder, batch: TokenBatch, cache: KVCache) -> Tensor:
    """Logits [T, vocabulary] of a pass, on the CPU."""
    return network.logits(network.forward(batch, cache)[0]).double().cpu()


@torch.inference_mode()
def _milliseconds(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    return 1e3 * median(call_times(device, call, repeats))
