"""Logits, attention and text on the device against the CPU in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.decoding import requests_of, serve
from benchmarks.gpu_card import random_prompts
from benchmarks.gpu_check.frame import Budget, Findings
from benchmarks.gpu_check.near_ties import Compared
from benchmarks.gpu_check.subject import Subject
from engine.serving import LiveServer
from eval.lossless.departures import logits_after
from models.attention import PlainAttention, StoringAttention
from models.attention_choice import choose_attention
from models.decoder import Decoder
from models.kv_cache import KVCache, TokenBatch
from models.random_weights import CPU
from policies.registry import make
from tests.random_paged import Kind, Paged, Sizes, draw_paged

PROMPT_TOKENS = 48
REQUESTS, TOKENS, TINY_TOKENS = 8, 32, 12
CONTROLLERS = ("autoregressive", "eagle3(3,4,8)")
TREE_PARENTS = (-1, -1, 0, 0, 1, 2, 5, 6)  # -1 is the prompt's last token
FORMATS = (torch.float32, torch.bfloat16)
# Relative to the reference's own spread. Bfloat16 keeps eight bits, and a card shall lose no more
# of them than twice what this machine's processor does.
FLOAT32_ERROR = 1e-4
TIMES_CPU_ERROR, LEAST_BFLOAT16_ERROR = 2.0, 0.01
ATTENTION_ERRORS = {torch.float32: 1e-5, torch.bfloat16: 0.03}
KINDS: tuple[Kind, ...] = ("trees", "beams", "chains", "single")


def parity(subject: Subject, budget: Budget) -> Findings:
    """Of attention on random pages, then of the small pair's logits and text."""
    table, wrong = [["what", "format", "attention", "error", "allowed"]], []

    def judge(what: str, dtype: torch.dtype, attention: str, error: float, most: float) -> None:
        name = str(dtype).removeprefix("torch.")
        table.append([what, name, attention, f"{error:.2e}", f"{most:.1e}"])
        if not error <= most:  # NaN is none either
            wrong.append(f"{what} in {name} under {attention}: {error:.2e}, allowed {most:.1e}")

    for dtype in FORMATS:
        name = "interpreter" if subject.device == CPU else subject.attention(dtype, subject.device)
        for kind in KINDS:
            error = attention_error(kind, dtype, subject.device, name)
            judge(f"attention, {kind}", dtype, name, error, ATTENTION_ERRORS[dtype])
    reference = subject.small_in(torch.float32, CPU)
    wanted = read_logits(reference.decoder)
    texts: list[str] = []
    for dtype in FORMATS:
        if not budget.allows(f"logits and text in {str(dtype).removeprefix('torch.')}"):
            continue
        server = subject.small_in(dtype, subject.device)
        off = difference(read_logits(server.decoder), wanted)
        allowed = FLOAT32_ERROR
        if dtype == torch.bfloat16:
            own = difference(read_logits(subject.small_in(dtype, CPU).decoder), wanted)
            allowed = max(TIMES_CPU_ERROR * own.relative, LEAST_BFLOAT16_ERROR)
        judge("logits", dtype, server.attention, off.relative, allowed)
        compared = compare_texts(server, reference, off.largest, subject.tiny)
        texts.append(f"{str(dtype).removeprefix('torch.')} {compared}")
        wrong += [f"text in {dtype}: {line}" for line in compared.wrong]
    return Findings(
        f"{subject.names['small']} against the CPU in float32; same text: " + "; ".join(texts),
        table,
        wrong,
    )


class Difference(NamedTuple):
    """How far logits [T, vocabulary] are from others."""

    relative: float
    """Root mean square over that of the others around their mean."""
    largest: float


def difference(logits: Tensor, wanted: Tensor) -> Difference:
    """Of logits on the CPU in float32."""
    off = logits - wanted
    spread = wanted - wanted.mean(-1, keepdim=True)
    relative = float(off.square().mean().sqrt() / spread.square().mean().sqrt())
    return Difference(relative, float(off.abs().max()))


@torch.inference_mode()
def read_logits(decoder: Decoder) -> Tensor:
    """Logits [T, vocabulary] of a prompt and of a small tree behind it, on the CPU in float32."""
    rng = np.random.default_rng(1)
    n, tree = PROMPT_TOKENS, len(TREE_PARENTS)
    tokens = torch.from_numpy(rng.integers(0, decoder.config.vocab_size, n + tree))
    cache = decoder.new_cache(1, n + tree)
    seen, depth = tree_sight(TREE_PARENTS, n)
    offsets = torch.arange(tree)
    nodes = TokenBatch(
        tokens[n:], n + depth, torch.zeros_like(offsets), n + offsets, offsets, seen[None], 0, 1
    )
    passes = TokenBatch.whole(tokens[:n]), nodes
    parts = [decoder.logits(decoder.forward(batch, cache)[0]) for batch in passes]
    return torch.cat([part.float().cpu() for part in parts])


def tree_sight(parents: Sequence[int], context: int) -> tuple[Tensor, Tensor]:
    """Rows that nodes [N] behind a context see, bool [N, context + N], and their depths from 0.

    A parent stands before its children; -1 is the context's last token.
    """
    seen = torch.eye(len(parents), dtype=torch.bool)
    depth = torch.zeros(len(parents), dtype=torch.int64)
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node] |= seen[parent]
            depth[node] = depth[parent] + 1
    return torch.cat((seen.new_ones(len(parents), context), seen), dim=1), depth


def compare_texts(server: LiveServer, reference: LiveServer, error: float, tiny: bool) -> Compared:
    """Greedy text of ordinary decoding and of trees against the reference's ordinary decoding."""
    tokens = TINY_TOKENS if tiny else TOKENS
    running = min(REQUESTS, reference.settings.limits.slots)
    prompts = random_prompts(server, running, PROMPT_TOKENS)
    compared = Compared()

    def texts(of: LiveServer, spec: str) -> list[list[int]]:
        served = serve(of, requests_of(prompts, tokens), make(spec), running)
        compared.draft_failures += served.draft_failures
        return served.outputs

    wanted = texts(reference, "autoregressive")
    for spec in CONTROLLERS:
        for prompt, text, other in zip(prompts, wanted, texts(server, spec), strict=True):
            compared.add(
                prompt, text, other, lambda t: logits_after(reference.decoder, list(t)), error
            )
    return compared


@torch.inference_mode()
def attention_error(kind: Kind, dtype: torch.dtype, device: torch.device, name: str) -> float:
    """Largest difference of an attention on random pages from the plain one in float32."""
    sizes = Sizes(kind, 5, 200, 9, 16, 2, 4, 64, seed=3)
    wanted = attended(PlainAttention(), draw_paged(sizes, torch.float32), CPU)
    attention = choose_attention(name, dtype, device)
    got = attended(attention, draw_paged(sizes, dtype), device)
    return float((got - wanted).abs().max())


def attended(attention: object, case: Paged, device: torch.device) -> Tensor:
    """Mixed values [T, heads * head_dim] of layer 1 after storing, on the CPU in float32."""
    pages, kv_heads, page_size, head_dim = case.cache.keys.shape[1:]
    layers, dtype = case.cache.keys.shape[0], case.cache.keys.dtype
    cache = KVCache(layers, pages, kv_heads, page_size, head_dim, dtype, device)
    cache.use_tables(case.cache.tables)
    cache.keys.copy_(case.cache.keys)
    cache.values.copy_(case.cache.values)
    query, keys, values = (part.to(device) for part in (case.query, case.keys, case.values))
    batch = case.batch
    plan = attention.plan(batch, cache, query.shape[1])  # type: ignore[attr-defined]
    if isinstance(plan, StoringAttention):
        plan.store(1, keys, values, cache)
    else:
        cache.write(1, batch.on(device), keys, values)
    mixed: Tensor = plan.attend(1, query, cache, batch.first_slot, batch.end_slot)
    return mixed.float().cpu()
