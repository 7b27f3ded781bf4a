"""FlashInfer attention: which operators are called with what, once a pass and in every layer.

Trees go through a wrapper with a mask (backend fa2, the only one that takes masks), chains and
ordinary decoding through another without, so that Hopper keeps fa3. One wrapper could not serve
both: it settles on a backend at its first plan and stays with it. The operators come from outside,
so that `models.flashinfer_interpreter` can take FlashInfer's place; FlashInfer itself is imported
here alone, and only when it is asked for. Only arguments that 0.6.18 to 0.7 share are used.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import torch
from torch import Tensor

from models.attention import StoringAttention
from models.errors import UserError
from models.kv_cache import KVCache, TokenBatch
from models.paged_batch import PagedBatch, lay_out_pages

LAYOUT = "HND"  # [pages, kv_heads, page_size, head_dim] as `KVCache` has it: nothing is copied
WORKSPACE_BYTES = 128 * 2**20  # what FlashInfer advises
OLDEST, BEYOND = (0, 6, 18), (0, 8, 0)
PIN = "flashinfer-python>=0.6.18,<0.8"


class Operators(Protocol):
    """What is used of the package `flashinfer`, under its own names."""

    @property
    def BatchPrefillWithPagedKVCacheWrapper(self) -> Any:
        """Attention of ragged queries over paged keys and values."""
        ...

    @property
    def append_paged_kv_cache(self) -> Any:
        """Writing of new keys and values."""
        ...


def import_flashinfer() -> Operators:
    """The package; raises UserError when it is missing or another version."""
    try:
        import flashinfer
    except ImportError as error:
        raise UserError(
            f"FlashInfer attention needs the package {PIN}, and importing it failed ({error}); "
            "install draftgym[gpu], or choose attention plain"
        ) from error
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", flashinfer.__version__)
    if not found or not OLDEST <= tuple(map(int, found.groups())) < BEYOND:
        raise UserError(
            f"FlashInfer attention is written for {PIN}, but {flashinfer.__version__} is "
            "installed; install draftgym[gpu], or choose attention plain"
        )
    operators: Operators = flashinfer
    return operators


class FlashInferAttention:
    """Plans passes of one network; its wrappers hold one plan each, so one pass at a time."""

    compiled_layers = False

    def __init__(
        self,
        operators: Operators,
        device: torch.device,
        workspace_bytes: int = WORKSPACE_BYTES,
    ) -> None:
        workspace = torch.empty(workspace_bytes, dtype=torch.uint8, device=device)
        self.device = device
        self.append = operators.append_paged_kv_cache
        make = operators.BatchPrefillWithPagedKVCacheWrapper
        self.masked = make(workspace, kv_layout=LAYOUT, backend="fa2")
        self.causal = make(workspace, kv_layout=LAYOUT, backend="auto")
        self._planned = torch.cuda.Event() if device.type == "cuda" else None

    def plan(self, batch: TokenBatch, cache: KVCache, heads: int) -> PagedAttention:
        """Attention of this pass; the one before must have been run to its last layer."""
        paged = lay_out_pages(batch, cache.tables, cache.page_size)
        # A plan is staged in pinned memory that the next one overwrites: let the copy end first.
        if self._planned is not None:
            self._planned.synchronize()
        wrapper = self._plan_wrapper(paged, cache, heads)
        if self._planned is not None:
            self._planned.record()
        return PagedAttention(wrapper, self.append, paged, self.device)

    def _plan_wrapper(self, paged: PagedBatch, cache: KVCache, heads: int) -> Any:
        """The wrapper that serves the batch, planned."""
        _, _, kv_heads, page_size, head_dim = cache.keys.shape
        indptrs = paged.qo_indptr, paged.kv_indptr, paged.kv_indices, paged.last_page_len
        sizes = heads, kv_heads, head_dim, page_size
        dtypes = {"q_data_type": cache.keys.dtype, "kv_data_type": cache.keys.dtype}
        scale = head_dim**-0.5
        if paged.mask is None:
            self.causal.plan(*indptrs, *sizes, causal=True, sm_scale=scale, **dtypes)
            return self.causal
        # Not `packed_custom_mask`: with more than one request FlashInfer (0.6.18 and 0.7.4) looks
        # for a request's bytes at its offset in bits (flashinfer pull request 2201).
        mask = paged.mask.to(self.device)
        self.masked.plan(*indptrs, *sizes, custom_mask=mask, sm_scale=scale, **dtypes)
        return self.masked


class PagedAttention(StoringAttention):
    """One planned pass: writes new keys and values into their pages, then attends over them."""

    def __init__(self, wrapper: Any, append: Any, paged: PagedBatch, device: torch.device) -> None:
        self.wrapper, self.append = wrapper, append
        self.where = [
            index.to(device, non_blocking=True) for index in (paged.requests, paged.positions)
        ]
        self.pages = [
            index.to(device, non_blocking=True)
            for index in (paged.kv_indices, paged.kv_indptr, paged.last_page_len)
        ]

    def store(self, layer: int, keys: Tensor, values: Tensor, cache: KVCache) -> None:
        """Write keys and values [T, kv_heads, head_dim] of the pass's tokens."""
        stored = cache.keys[layer], cache.values[layer]
        self.append(keys, values, *self.where, stored, *self.pages, kv_layout=LAYOUT)

    def attend(self, layer: int, query: Tensor, cache: KVCache, first: int, end: int) -> Tensor:
        """query [T, heads, head_dim] to mixed values [T, heads * head_dim]."""
        mixed: Tensor = self.wrapper.run(query, (cache.keys[layer], cache.values[layer]))
        return mixed.view(len(query), -1)
