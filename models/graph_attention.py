"""FlashInfer attention inside CUDA graphs: arrays that never move, and a wrapper for each tier.

A graph remembers where it reads, so all that changes between two replays is copied into the same
memory before. The tiers of a network share that memory, since it runs one pass at a time. Both
kinds of wrapper are of backend fa2: masks know no other, and for the few tokens a request of these
passes 0.7 chooses it over fa3 as well, whose schedules need another layout of the same workspace.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.flashinfer_attention import LAYOUT, FlashInferAttention, PagedAttention, plan_wrapper
from models.graph_tiers import GraphTiers, Tier
from models.kv_cache import KVCache
from models.paged_batch import PagedBatch, pack_mask

# For schedules. Every wrapper pins as much memory again, so not the 8 MiB that FlashInfer takes:
# `PrefillPlan` of 0.6.18 asks for 13 bytes a block, of a thousand at most, 4 a token and request.
INT_WORKSPACE_BYTES = 256 * 2**10
LARGEST_TILE = 128  # query rows of a block of fa2, at most


class StaticArray:
    """An array that graphs read, and the pinned memory in which the host prepares its contents.

    That memory is made when the host first has something to prepare: some come from the card alone.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.there = torch.zeros(shape, dtype=dtype, device=device)
        self._staged: Tensor | None = None

    def put(self, values: Tensor) -> Tensor:
        """Copy values [n] to the front and return that part.

        The host waits for nothing: it must not come again before the copy has ended
        (`FlashInferAttention.planning`).
        """
        part = self.there[: len(values)]
        if self.there.device.type == "cuda" and values.device.type == "cpu":
            if self._staged is None:
                self._staged = torch.empty(
                    self.there.shape, dtype=self.there.dtype, pin_memory=True
                )
            staged = self._staged[: len(values)]
            staged.copy_(values)
            values = staged
        part.copy_(values, non_blocking=True)
        return part


class GraphAttention:
    """Plans the captured passes of one network over one cache."""

    def __init__(self, attention: FlashInferAttention, cache: KVCache, tiers: GraphTiers) -> None:
        """The cache has its block tables already: they bound pages and rows."""
        self.attention, self.cache = attention, cache
        tokens, requests = tiers.tokens[-1], tiers.requests[-1] + 1
        rows = max(cache.tables.shape[1] * cache.page_size, tokens)
        pages = cache.tables.size + requests + -(-tokens // cache.page_size)
        device = attention.device

        def ints(length: int) -> StaticArray:
            return StaticArray((length,), torch.int32, device)

        self.requests, self.rows = ints(tokens), ints(tokens)
        self.qo_indptr, self.kv_indptr = ints(requests + 1), ints(requests + 1)
        self.kv_indices, self.last_page_len = ints(pages), ints(requests)
        self.mask_indptr = ints(requests + 1)
        self.mask = StaticArray((tokens * rows // 8 + requests,), torch.uint8, device)
        self.workspaces: tuple[Tensor, Tensor] | None = None
        self.wrappers: dict[tuple[Tier, bool], Any] = {}

    def plan(self, padded: PagedBatch, tier: Tier, heads: int) -> PagedAttention:
        """Attention over a batch that `pad_pages` has brought to the tier; the arrays are set."""
        wrapper = self._wrapper(tier, padded.mask is not None, heads)
        indices = self.kv_indices.put(padded.kv_indices)
        self.requests.put(padded.requests)
        self.rows.put(padded.positions)
        # The wrapper copies `padded`'s other arrays into ours, and these two onto themselves: from
        # the host it would wait for the card.
        planned = padded._replace(kv_indices=indices)
        if padded.mask is None:
            plan_wrapper(wrapper, planned, self.cache, heads, causal=True)
        else:
            packed, ends = pack_mask(padded.mask, padded.mask_ends(self.cache.page_size))
            packed = self.mask.put(packed)
            plan_wrapper(wrapper, planned, self.cache, heads, packed_custom_mask=packed)
            # It leaves offsets in bits, the kernel wants bytes (flashinfer pull request 2201).
            self.mask_indptr.put(ends)
        return PagedAttention(
            wrapper, self.attention.operators.append_paged_kv_cache, self._arrays(tier)
        )

    def _arrays(self, tier: Tier) -> PagedBatch:
        """The arrays of a tier, where its graph reads them."""
        requests = tier.requests + 1
        return PagedBatch(
            qo_indptr=self.qo_indptr.there[: requests + 1],
            kv_indptr=self.kv_indptr.there[: requests + 1],
            kv_indices=self.kv_indices.there,
            last_page_len=self.last_page_len.there[:requests],
            requests=self.requests.there[: tier.tokens],
            positions=self.rows.there[: tier.tokens],
            mask=None,
        )

    def _wrapper(self, tier: Tier, masked: bool, heads: int) -> Any:
        """The wrapper of a tier: its batch size and the tokens of its first plan are for good."""
        if (tier, masked) in self.wrappers:
            return self.wrappers[tier, masked]
        workspaces = self.workspaces = self.workspaces or self._new_workspaces(heads)
        arrays = self._arrays(tier)
        masks: dict[str, Tensor] = {}
        if masked:
            masks = {
                "custom_mask_buf": self.mask.there,
                "mask_indptr_buf": self.mask_indptr.there[: tier.requests + 2],
            }
        wrapper = self.attention.operators.BatchPrefillWithPagedKVCacheWrapper(
            workspaces[0],
            kv_layout=LAYOUT,
            use_cuda_graph=True,
            qo_indptr_buf=arrays.qo_indptr,
            paged_kv_indptr_buf=arrays.kv_indptr,
            paged_kv_indices_buf=arrays.kv_indices,
            paged_kv_last_page_len_buf=arrays.last_page_len,
            **masks,
            backend="fa2",
        )
        wrapper.reset_workspace_buffer(*workspaces)
        self.wrappers[tier, masked] = wrapper
        return wrapper

    def _new_workspaces(self, heads: int) -> tuple[Tensor, Tensor]:
        """Room for partial results and for schedules, enough for the largest tier.

        In a graph fa2 always splits the rows of a request; `PrefillPlan` of 0.6.18 then asks for a
        value [head_dim] and a sum in float32 for every head and query row of every block.
        """
        _, _, kv_heads, _, head_dim = self.cache.keys.shape
        n_bytes, device = self.attention.workspace_bytes, self.attention.device
        if device.type == "cuda":
            blocks = 2 * torch.cuda.get_device_properties(device).multi_processor_count // kv_heads
            tokens, requests = len(self.rows.there), len(self.last_page_len.there)
            rows = tokens * heads // kv_heads + LARGEST_TILE * requests
            rows = max(rows, LARGEST_TILE * blocks)
            n_bytes = max(n_bytes, 4 * heads * rows * (head_dim + 1) + 256)
        partial, schedules = (
            torch.empty(size, dtype=torch.uint8, device=device)
            for size in (n_bytes, min(INT_WORKSPACE_BYTES, n_bytes))
        )
        return partial, schedules
