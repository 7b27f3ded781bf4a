"""One request through FlashInfer's operators: whether they run here, and that they are compiled.

FlashInfer compiles a kernel when it is first asked for: that the package imports proves little.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from models.flashinfer_attention import FlashInferAttention, Operators
from models.kv_cache import KVCache, TokenBatch

PAGE_SIZE = 16
FEW, MANY = 4, 128  # tokens; 0.7 takes another backend for prompts than for few tokens a request


class Heads(NamedTuple):
    """What kernels are compiled for, besides a format."""

    query: int
    kv: int
    dim: int


@torch.inference_mode()
def run_once(operators: Operators, heads: Heads, dtype: torch.dtype, device: torch.device) -> None:
    """Plan, append and run with a mask and without.

    Raises what they raise, and ValueError where attention over values of 1 is not 1.
    """
    for tokens, masked in ((FEW, True), (FEW, False), (MANY, False)):
        batch = TokenBatch.whole(torch.arange(tokens))
        if masked:
            batch.mask[0, -1, -2] = False  # two siblings
        pages = MANY // PAGE_SIZE
        cache = KVCache(1, pages, heads.kv, PAGE_SIZE, heads.dim, dtype, device)
        cache.use_tables(np.arange(pages)[None])
        query, new = (
            torch.ones(tokens, count, heads.dim, dtype=dtype, device=device)
            for count in (heads.query, heads.kv)
        )
        # Anew every time, since a wrapper settles on a backend at its first plan.
        plan = FlashInferAttention(operators, device).plan(batch, cache, heads.query)
        plan.store(0, new, new, cache)
        error = float((plan.attend(0, query, cache, 0, 1).float() - 1).abs().max())
        if not error <= 0.05:  # NaN is none either
            raise ValueError(f"attention over values of 1 is {error:.3g} off 1")
