"""The random schedules once more with FlashInfer's calls in place of the CPU's attention.

Target and drafters plan and run their passes through `models.flashinfer_attention` on the
interpreter. What their texts are held to comes from the CPU's own attention, and from no cache.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch

from models import flashinfer_interpreter
from models.decoder import Decoder
from models.draft_head import DraftHead
from models.flashinfer_attention import FlashInferAttention, Operators, PagedAttention
from models.kv_cache import KVCache, TokenBatch
from tests.random_schedules import (
    answer,
    draft_head,
    draft_model,
    draw_requests,
    run_schedules,
    target,
)


class CountedAttention(FlashInferAttention):
    """FlashInfer attention that counts its passes, with a mask and without."""

    def __init__(self, passes: Counter[str], operators: Operators = flashinfer_interpreter) -> None:
        super().__init__(operators, torch.device("cpu"), workspace_bytes=16)
        self.passes = passes

    def plan(self, batch: TokenBatch, cache: KVCache, heads: int) -> PagedAttention:
        """The pass, counted."""
        plan = super().plan(batch, cache, heads)
        self.passes["masked passes" if plan.wrapper is self.masked else "causal passes"] += 1
        return plan


def run_interpreted_schedules(
    count: int, seed: int, operators: Operators = flashinfer_interpreter
) -> dict[str, int]:
    """`tests.random_schedules.run_schedules` on the interpreter; its counts, and the passes'.

    Raises AssertionError where a text is not the CPU's. Other `operators` serve as a control.
    """
    answer(draw_requests(np.random.default_rng(0))[0])  # the CPU's answers, all of them
    networks: list[Decoder | DraftHead] = [target(), draft_model(), draft_head()]
    before = [network.attention for network in networks]
    passes: Counter[str] = Counter()
    try:
        for network in networks:
            network.attention = CountedAttention(passes, operators)
        return {**run_schedules(count, seed), **passes}
    finally:
        for network, attention in zip(networks, before, strict=True):
            network.attention = attention
