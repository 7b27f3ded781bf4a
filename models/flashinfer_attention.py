"""FlashInfer attention: which operators are called with what, once a pass and in every layer.

Trees go through a wrapper with a mask (backend fa2, the only one that takes masks), chains and
ordinary decoding through another without, so that Hopper keeps fa3. One wrapper could not serve
both: it settles on a backend at its first plan and stays with it. The operators come from outside,
so that `models.flashinfer_interpreter` can take FlashInfer's place; FlashInfer itself is imported
here alone, and only when it is asked for. Only arguments that 0.6.18 to 0.7 share are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from models.attention import StoringAttention
from models.errors import UserError
from models.kv_cache import KVCache, TokenBatch
from models.paged_batch import PagedBatch, lay_out_pages
from models.upload import upload

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
        self.operators, self.device, self.workspace_bytes = operators, device, workspace_bytes
        make = operators.BatchPrefillWithPagedKVCacheWrapper
        self.masked = make(workspace, kv_layout=LAYOUT, backend="fa2")
        self.causal = make(workspace, kv_layout=LAYOUT, backend="auto")
        self._planned = torch.cuda.Event() if device.type == "cuda" else None

    def plan(self, batch: TokenBatch, cache: KVCache, heads: int) -> PagedAttention:
        """Attention of this pass; the one before must have been run to its last layer."""
        paged = lay_out_pages(batch, cache.tables, cache.page_size)
        with self.planning():
            wrapper = self._plan_wrapper(paged, cache, heads)
        append = self.operators.append_paged_kv_cache
        return PagedAttention(wrapper, append, paged.on(self.device))

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Plan within: what is staged for the card there, the next plan overwrites.

        So it waits until the copies of the plan before have ended, not for the pass behind them.
        """
        if self._planned is not None:
            self._planned.synchronize()
        yield
        if self._planned is not None:
            self._planned.record()

    def _plan_wrapper(self, paged: PagedBatch, cache: KVCache, heads: int) -> Any:
        """The wrapper that serves the batch, planned."""
        if paged.mask is None:
            plan_wrapper(self.causal, paged, cache, heads, causal=True)
            return self.causal
        # Not `packed_custom_mask`: with more than one request FlashInfer (0.6.18 and 0.7.4) looks
        # for a request's bytes at its offset in bits (flashinfer pull request 2201).
        plan_wrapper(self.masked, paged, cache, heads, custom_mask=upload(paged.mask, self.device))
        return self.masked


def plan_wrapper(wrapper: Any, paged: PagedBatch, cache: KVCache, heads: int, **sight: Any) -> None:
    """Plan a pass of the batch over a cache; `sight` says what tokens see, in FlashInfer's words.

    The index arrays are the host's, except `kv_indices`, which planning does not read.
    """
    _, _, kv_heads, page_size, head_dim = cache.keys.shape
    wrapper.plan(
        paged.qo_indptr,
        paged.kv_indptr,
        paged.kv_indices,
        paged.last_page_len,
        heads,
        kv_heads,
        head_dim,
        page_size,
        # Else it looks for the maximum in Python, a tensor at a time. Not `max_sequence_kv`: given
        # that, it leaves out what its schedule is made of.
        max_token_per_sequence=int(paged.qo_indptr.diff().max()),
        sm_scale=head_dim**-0.5,
        q_data_type=cache.keys.dtype,
        kv_data_type=cache.keys.dtype,
        **sight,
    )


class PagedAttention(StoringAttention):
    """One planned pass: writes new keys and values into their pages, then attends over them."""

    def __init__(self, wrapper: Any, append: Any, paged: PagedBatch) -> None:
        """The batch's arrays stand where the cache does."""
        self.wrapper, self.append = wrapper, append
        self.where = paged.requests, paged.positions
        self.pages = paged.kv_indices, paged.kv_indptr, paged.last_page_len

    def store(self, layer: int, keys: Tensor, values: Tensor, cache: KVCache) -> None:
        """Write keys and values [T, kv_heads, head_dim] of the pass's tokens."""
        stored = cache.keys[layer], cache.values[layer]
        self.append(keys, values, *self.where, stored, *self.pages, kv_layout=LAYOUT)

    def attend(self, layer: int, query: Tensor, cache: KVCache, first: int, end: int) -> Tensor:
        """query [T, heads, head_dim] to mixed values [T, heads * head_dim]."""
        mixed: Tensor = self.wrapper.run(query, (cache.keys[layer], cache.values[layer]))
        return mixed.view(len(query), -1)
