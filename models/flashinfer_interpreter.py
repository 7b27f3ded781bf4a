"""FlashInfer's two operators in plain torch: the same calls, computed as its documentation says.

It stands in for the package where there is no card, so that what is handed to `plan`, `run` and
`append_paged_kv_cache` is shown to be right. It refuses what FlashInfer refuses and, as a reference
should, what FlashInfer would take without a check and then read beyond its arrays. It goes further
in one thing: FlashInfer's prefill knows 16-bit numbers only, the interpreter takes float32 and
float64 as well, or text could not be compared to the last token. Any head_dim will do, too.

Masks are kept and read as the kernel does it, in packed bytes. Read beside FlashInfer 0.6.18's
`prefill.py`, `page.py` and `variants.cuh`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.paged_batch import pack_mask

BACKENDS = ("auto", "fa2", "fa3")
LAYOUTS = ("NHD", "HND")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # the last two: ours alone
PagedCache = Tensor | tuple[Tensor, Tensor]


class BatchPrefillWithPagedKVCacheWrapper:
    """Attention of ragged queries over paged keys and values, planned once and run per layer.

    As with FlashInfer, a wrapper for CUDA graphs copies every plan into the caller's buffers and
    `run` reads those: a mask buffer given there means that every run has a mask.
    """

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Tensor | None = None,
        paged_kv_indptr_buf: Tensor | None = None,
        paged_kv_indices_buf: Tensor | None = None,
        paged_kv_last_page_len_buf: Tensor | None = None,
        custom_mask_buf: Tensor | None = None,
        mask_indptr_buf: Tensor | None = None,
        backend: str = "auto",
    ) -> None:
        _require(
            float_workspace_buffer.data_ptr() % 16 == 0, "the workspace is not 16-byte aligned"
        )
        _require(kv_layout in LAYOUTS, f"kv_layout {kv_layout!r} is not one of {LAYOUTS}")
        _require(backend in BACKENDS, f"backend {backend!r} is not one of {BACKENDS}")
        self.kv_layout, self.backend, self.use_cuda_graph = kv_layout, backend, use_cuda_graph
        buffers = qo_indptr_buf, paged_kv_indptr_buf, paged_kv_indices_buf
        self._buffers = (*buffers, paged_kv_last_page_len_buf)
        self._mask_buffers = custom_mask_buf, mask_indptr_buf
        self._rows = 0  # of the first plan, which bounds all later ones of a graph
        if use_cuda_graph:
            _require(all(b is not None for b in self._buffers), "CUDA graphs need all four buffers")
        self._planned = False

    def reset_workspace_buffer(
        self, float_workspace_buffer: Tensor, int_workspace_buffer: Tensor
    ) -> None:
        """Take workspaces that may be shared with wrappers which run at other times."""
        for buffer in (float_workspace_buffer, int_workspace_buffer):
            _require(buffer.data_ptr() % 16 == 0, "a workspace is not 16-byte aligned")

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        custom_mask: Tensor | None = None,
        packed_custom_mask: Tensor | None = None,
        causal: bool = False,
        sm_scale: float | None = None,
        q_data_type: torch.dtype = torch.float16,
        kv_data_type: torch.dtype | None = None,
        max_token_per_sequence: int | None = None,
    ) -> None:
        """Check and keep what the runs need; `causal` counts only where there is no mask.

        Raises ValueError for what cannot be run.
        """
        indices = qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len
        _check_pages(*indices, page_size)
        kv_data_type = kv_data_type or q_data_type
        _require(
            num_kv_heads > 0 and num_qo_heads % num_kv_heads == 0,
            f"{num_qo_heads} query heads are no multiple of {num_kv_heads} key/value heads",
        )
        for dtype in (q_data_type, kv_data_type):
            _require(dtype in DTYPES, f"{dtype} is not one of {DTYPES}")
        tokens = qo_indptr.diff()
        _require(
            max_token_per_sequence is None or max_token_per_sequence == int(tokens.max()),
            f"max_token_per_sequence {max_token_per_sequence} is not the longest request's",
        )
        lengths = _lengths(paged_kv_indptr, paged_kv_last_page_len, page_size)
        bits = _ends(tokens * lengths)
        mask: tuple[Tensor, Tensor] | None = None
        if packed_custom_mask is not None:
            mask = self._check_packed(packed_custom_mask, bits), bits
        elif custom_mask is not None:
            _require(custom_mask.dtype == torch.bool, f"the mask is {custom_mask.dtype}, not bool")
            _require(
                custom_mask.numel() == int(bits[-1]),
                f"the mask has {custom_mask.numel()} elements, the batch {int(bits[-1])}",
            )
            mask = pack_mask(custom_mask.reshape(-1), bits)
        elif causal:
            _require(
                bool((lengths >= tokens).all()), "causal: a request has more queries than rows"
            )
        self._keep(indices, mask)
        self.heads, self.shape = (
            num_qo_heads,
            _page_shape(self.kv_layout, num_kv_heads, page_size, head_dim_qk),
        )
        self.page_size, self.causal = page_size, causal
        self.q_dtype, self.kv_dtype = q_data_type, kv_data_type
        self.scale = head_dim_qk**-0.5 if sm_scale is None else sm_scale

    def _check_packed(self, packed: Tensor, bits: Tensor) -> Tensor:
        """A packed mask of the right length, where FlashInfer would find its requests."""
        _require(packed.dtype == torch.uint8, f"the packed mask is {packed.dtype}, not uint8")
        n_bytes = int(((bits.diff() + 7) // 8).sum())
        _require(
            packed.numel() == n_bytes,
            f"the packed mask has {packed.numel()} bytes, the batch {n_bytes}",
        )
        # Flashinfer pull request 2201. The buffers of a graph are the caller's, who can put the
        # offsets right after the plan.
        _require(
            self.use_cuda_graph or len(bits) == 2,
            "FlashInfer looks for each request of a packed mask at its offset in bits, which is "
            "right for one request alone; hand in custom_mask",
        )
        return packed

    def _keep(self, indices: tuple[Tensor, ...], mask: tuple[Tensor, Tensor] | None) -> None:
        """The arrays as `run` will read them: copies, or in the buffers of a graph."""
        if mask is not None:
            _require(self.backend != "fa3", "backend fa3 takes no custom mask; use fa2")
        if not self.use_cuda_graph:
            self._arrays: tuple[Tensor, ...] = tuple(array.cpu().clone() for array in indices)
            self._mask = None if mask is None else (mask[0].cpu().clone(), mask[1].cpu().clone())
            self._planned = True
            return
        rows = int(indices[0][-1])
        _require(not self._rows or rows <= self._rows, f"{rows} rows, first planned {self._rows}")
        self._rows = self._rows or rows
        self._arrays = tuple(b for b in self._buffers if b is not None)
        for to, array in zip(self._arrays, indices, strict=True):
            whole = array is not indices[2]  # the page numbers alone may be fewer
            fits = to.numel() == array.numel() if whole else to.numel() >= array.numel()
            _require(fits, f"a buffer of {to.numel()} cannot take an array of {array.numel()}")
            to[: array.numel()] = array
        to_mask, to_indptr = self._mask_buffers
        self._mask = None
        if mask is not None:
            if to_mask is None or to_indptr is None:
                raise ValueError("a mask in a graph needs custom_mask_buf and mask_indptr_buf")
            to_mask[: mask[0].numel()] = mask[0]
            to_indptr[:] = mask[1]
        if to_mask is not None and to_indptr is not None:
            self._mask = to_mask, to_indptr
        self._planned = True

    def run(self, q: Tensor, paged_kv_cache: PagedCache, *, out: Tensor | None = None) -> Tensor:
        """Mixed values [T, heads, head_dim] of queries q of that shape; zeros for who sees nothing.

        Raises ValueError for what the plan was not made for.
        """
        _require(self._planned, "run before plan")
        keys, values = _unpack(paged_kv_cache)
        _require(q.dtype == self.q_dtype, f"q is {q.dtype}, planned was {self.q_dtype}")
        for stored in (keys, values):
            _require(stored.dtype == self.kv_dtype, f"{stored.dtype}, planned {self.kv_dtype}")
            _require(
                tuple(stored.shape[1:]) == self.shape,
                f"pages are {tuple(stored.shape[1:])}, planned {self.shape} ({self.kv_layout})",
            )
        qo_indptr, kv_indptr, indices, last_page_len = self._arrays
        wanted = int(qo_indptr[-1]), self.heads, keys.shape[-1]
        _require(tuple(q.shape) == wanted, f"q is {tuple(q.shape)}, planned {wanted}")
        if out is None:
            out = torch.empty_like(q)
        _require(out.shape == q.shape and out.dtype == q.dtype, "out is not of q's shape and dtype")
        lengths = _lengths(kv_indptr, last_page_len, self.page_size).tolist()
        tokens, ends = qo_indptr.tolist(), kv_indptr.tolist()
        for request, length in enumerate(lengths):
            begin, end = tokens[request : request + 2]
            own = indices[ends[request] : ends[request + 1]].long()
            _require(bool((own < len(keys)).all()), f"a page number is not below {len(keys)}")
            own_keys, own_values = (self._rows_of(pages[own], length) for pages in (keys, values))
            seen = self._seen(request, end - begin, length)
            out[begin:end] = _attend(q[begin:end], own_keys, own_values, seen, self.scale)
        return out

    def _rows_of(self, pages: Tensor, length: int) -> Tensor:
        """The first rows [kv_heads, length, head_dim] of a request's pages."""
        if self.kv_layout == "NHD":
            return pages.flatten(0, 1)[:length].transpose(0, 1)
        return pages.transpose(0, 1).flatten(1, 2)[:, :length]

    def _seen(self, request: int, tokens: int, length: int) -> Tensor:
        """Which rows each query may see [tokens, length]."""
        if self._mask is not None:
            packed, ends = self._mask
            begin, bits = int(ends[request]), tokens * length
            own = packed[begin : begin + (bits + 7) // 8]
            _require(8 * len(own) >= bits, f"request {request} reads beyond the packed mask")
            shifts = torch.arange(8, dtype=torch.uint8)
            return ((own[:, None] >> shifts) & 1).flatten()[:bits].view(tokens, length).bool()
        if not self.causal:
            return torch.ones(tokens, length, dtype=torch.bool)
        last = length - tokens + torch.arange(tokens)
        return torch.arange(length) <= last[:, None]


def append_paged_kv_cache(
    append_key: Tensor,
    append_value: Tensor,
    batch_indices: Tensor,
    positions: Tensor,
    paged_kv_cache: PagedCache,
    kv_indices: Tensor,
    kv_indptr: Tensor,
    kv_last_page_len: Tensor,
    kv_layout: str = "NHD",
) -> None:
    """Write keys and values [T, kv_heads, head_dim] at `positions` [T] of requests [T].

    Raises ValueError for arrays that do not fit, and positions behind a request's last row.
    """
    _require(kv_layout in LAYOUTS, f"kv_layout {kv_layout!r} is not one of {LAYOUTS}")
    keys, values = _unpack(paged_kv_cache)
    total, kv_heads, head_dim = append_key.shape
    page_size = keys.shape[1 if kv_layout == "NHD" else 2]
    for new, stored in ((append_key, keys), (append_value, values)):
        _require(new.dtype == stored.dtype, f"{new.dtype} is appended to a cache of {stored.dtype}")
        wanted = _page_shape(kv_layout, kv_heads, page_size, head_dim)
        _require(tuple(stored.shape[1:]) == wanted, f"pages are {tuple(stored.shape[1:])}")
        _require(new.shape == append_key.shape, "keys and values differ in shape")
    _require(keys.stride() == values.stride(), "keys and values are laid out differently in memory")
    for index in (batch_indices, positions):
        _require(index.dtype == torch.int32, f"an index array is {index.dtype}, not int32")
        _require(len(index) == total, f"{len(index)} indices for {total} tokens")
    lengths = _lengths(kv_indptr, kv_last_page_len, page_size)
    request, row = batch_indices.long(), positions.long()
    inside = (row >= 0) & (row < lengths[request])
    _require(bool(inside.all()), "a position lies behind the last row of its request")
    pages = kv_indices[kv_indptr[request] + row // page_size].long()
    for new, stored in ((append_key, keys), (append_value, values)):
        if kv_layout == "NHD":
            stored[pages, row % page_size] = new
        else:
            stored[pages, :, row % page_size] = new


def _attend(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scale: float) -> Tensor:
    """Softmax attention of one request, summed in float32 where numbers are narrower."""
    wide = torch.promote_types(q.dtype, torch.float32)
    groups = q.shape[1] // len(keys)
    query = q.transpose(0, 1).unflatten(0, (len(keys), groups)).to(wide)
    scores = scale * query @ keys.unsqueeze(1).to(wide).transpose(-1, -2)
    scores = scores.masked_fill(~seen, float("-inf"))
    weights = torch.where(seen.any(-1, keepdim=True), scores.softmax(-1), 0.0)
    return (weights @ values.unsqueeze(1).to(wide)).flatten(0, 1).transpose(0, 1).to(q.dtype)


def _check_pages(
    qo_indptr: Tensor, kv_indptr: Tensor, indices: Tensor, last_page_len: Tensor, page_size: int
) -> None:
    """Raise ValueError for index arrays that do not describe a batch."""
    for name, array in (
        ("qo_indptr", qo_indptr),
        ("paged_kv_indptr", kv_indptr),
        ("paged_kv_indices", indices),
        ("paged_kv_last_page_len", last_page_len),
    ):
        _require(array.dtype == torch.int32, f"{name} is {array.dtype}, not int32")
    _require(len(qo_indptr) == len(kv_indptr), "qo_indptr and paged_kv_indptr differ in length")
    _require(len(last_page_len) == len(kv_indptr) - 1, "last_page_len is not one a request")
    for array in (qo_indptr, kv_indptr):
        _require(int(array[0]) == 0 and bool((array.diff() >= 0).all()), "an indptr falls")
    _require(int(kv_indptr[-1]) <= len(indices), "paged_kv_indptr ends behind paged_kv_indices")
    _require(bool((indices >= 0).all()), "a page number is negative")
    some = kv_indptr.diff() > 0
    fits = torch.where(
        some, (last_page_len >= 1) & (last_page_len <= page_size), last_page_len == 0
    )
    _require(bool(fits.all()), f"a last page is not filled with 1 to {page_size} rows")


def _lengths(kv_indptr: Tensor, last_page_len: Tensor, page_size: int) -> Tensor:
    """Rows of each request, FlashInfer's `get_seq_lens`."""
    return (kv_indptr.diff() - 1).clamp(min=0) * page_size + last_page_len


def _page_shape(layout: str, kv_heads: int, page_size: int, head_dim: int) -> tuple[int, ...]:
    rows = (page_size, kv_heads) if layout == "NHD" else (kv_heads, page_size)
    return (*rows, head_dim)


def _unpack(cache: PagedCache) -> tuple[Tensor, Tensor]:
    """Keys and values; one tensor [pages, 2, ...] holds both."""
    if isinstance(cache, tuple):
        return cache
    _require(cache.ndim == 5 and cache.shape[1] == 2, f"the cache is {tuple(cache.shape)}")
    keys, values = cache.unbind(1)
    return keys, values


def _ends(counts: Tensor) -> Tensor:
    return torch.cat((counts.new_zeros(1), counts.cumsum(0))).int()


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise ValueError(why)
