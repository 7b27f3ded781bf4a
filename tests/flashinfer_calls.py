"""Every call that is made of FlashInfer, recorded, and held against the package's signatures."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch

from models import flashinfer_interpreter
from models.flashinfer_attention import FlashInferAttention
from models.graph_attention import GraphAttention
from models.graph_tiers import GraphTiers, Tier
from models.kv_cache import KVCache, TokenBatch
from models.paged_batch import lay_out_pages, pad_pages
from tests.random_paged import Sizes, draw_paged

CLASS = "BatchPrefillWithPagedKVCacheWrapper"
NAMES = (
    CLASS,
    f"{CLASS}.reset_workspace_buffer",
    f"{CLASS}.plan",
    f"{CLASS}.run",
    "append_paged_kv_cache",
)


class Call(NamedTuple):
    """One call, by its dotted name in the package."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Recorder:
    """The interpreter's operators, which write down how they are called."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        calls = self.calls

        class Wrapper(flashinfer_interpreter.BatchPrefillWithPagedKVCacheWrapper):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                calls.append(Call(CLASS, args, kwargs))
                super().__init__(*args, **kwargs)

            def reset_workspace_buffer(self, *args: Any, **kwargs: Any) -> None:
                calls.append(Call(f"{CLASS}.reset_workspace_buffer", (self, *args), kwargs))
                super().reset_workspace_buffer(*args, **kwargs)

            def plan(self, *args: Any, **kwargs: Any) -> None:
                calls.append(Call(f"{CLASS}.plan", (self, *args), kwargs))
                super().plan(*args, **kwargs)

            def run(self, *args: Any, **kwargs: Any) -> torch.Tensor:
                calls.append(Call(f"{CLASS}.run", (self, *args), kwargs))
                return super().run(*args, **kwargs)

        self.BatchPrefillWithPagedKVCacheWrapper = Wrapper

    def append_paged_kv_cache(self, *args: Any, **kwargs: Any) -> None:
        """Recorded, then done."""
        self.calls.append(Call("append_paged_kv_cache", args, kwargs))
        flashinfer_interpreter.append_paged_kv_cache(*args, **kwargs)


def recorded_calls() -> list[Call]:
    """All calls of a pass over trees and one over chains, each planned for a graph as well."""
    recorder = Recorder()
    attention = FlashInferAttention(recorder, torch.device("cpu"), workspace_bytes=16)
    for kind in ("trees", "chains"):
        case = draw_paged(Sizes(kind, 3, 20, 6, 4, 2, 2, 8, seed=1))
        batch, cache = case.batch, case.cache
        plan = attention.plan(batch, cache, case.query.shape[1])
        plan.store(0, case.keys, case.values, cache)
        plan.attend(0, case.query, cache, batch.first_slot, batch.end_slot)
        _plan_in_graph(attention, batch, cache, case.query.shape[1])
    return recorder.calls


def _plan_in_graph(
    attention: FlashInferAttention, batch: TokenBatch, cache: KVCache, heads: int
) -> None:
    """What a graph asks of the package: another wrapper, and a plan in its arrays."""
    tier = Tier(4, 32)
    paged = lay_out_pages(batch, cache.tables, cache.page_size)
    padded = pad_pages(paged, *tier, 0, cache.page_size)
    GraphAttention(attention, cache, GraphTiers()).plan(padded, tier, heads)


def refused_calls(package: Any) -> list[str]:
    """What the package's signatures do not take of the recorded calls; empty when they take all."""
    refused = []
    for call in recorded_calls():
        try:
            inspect.signature(_find(package, call.name)).bind(*call.args, **call.kwargs)
        except (TypeError, AttributeError) as error:
            refused.append(f"{call.name}: {error}")
    return refused


def differing_parameters(package: Any) -> list[str]:
    """Parameters of the interpreter that the package lacks, has elsewhere, or presets otherwise."""
    wrong = []
    for name in NAMES:
        theirs = inspect.signature(_find(package, name)).parameters
        for at, own in enumerate(
            inspect.signature(_find(flashinfer_interpreter, name)).parameters.values()
        ):
            place = f"{name}: {own.name}"
            if own.name not in theirs:
                wrong.append(f"{place} is unknown")
                continue
            other = theirs[own.name]
            if own.kind is not inspect.Parameter.KEYWORD_ONLY and list(theirs)[at] != own.name:
                wrong.append(f"{place} stands elsewhere")
            if _preset(own.default) != _preset(other.default):
                wrong.append(f"{place} is {own.default!r} here, {other.default!r} there")
    return wrong


def _find(package: Any, name: str) -> Any:
    for part in name.split("."):
        package = getattr(package, part)
    return package


def _preset(value: Any) -> Any:
    """A preset by its name: FlashInfer writes dtypes as strings."""
    return str(value).removeprefix("torch.")
