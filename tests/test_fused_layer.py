"""A layer as one compiled call computes what it computes operation by operation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.tiny import tiny_decoder, tiny_head
from models import decoder as decoder_module
from models import draft_head as head_module
from models.decoder import Decoder
from models.fused_layer import few_rows, layer_arrays
from models.kv_cache import KVCache
from models.layers import NARROW_ROWS, Linear
from tests.paged_cache import paged_copy
from tests.test_decoder import SHAPES, saved_model, text_batch, tree_batch

PARENTS, TOKENS = [-1, 0, 0, 1, 2], [3, 1, 4, 1, 5]


def rounded_to_bfloat16(folder: Path) -> None:
    """Weights that have their narrow form, as those of published checkpoints do."""
    path = folder / "model.safetensors"
    weights = {name: weight.bfloat16().float() for name, weight in load_file(path).items()}
    save_file(weights, path)


def taken(module: Any) -> Any:
    """`run_layer` of a network's module, counted."""
    return patch.object(module, "run_layer", wraps=module.run_layer)


def passes(decoder: Decoder, cache: KVCache) -> list[Tensor]:
    """A text, two trees behind it in slots of different lengths, and ordinary steps."""
    out = []
    for slot, n in ((0, 20), (1, 11)):
        tokens = [(7 * i + slot) % 50 for i in range(n)]
        out.append(decoder.forward(text_batch(tokens, slot=slot), cache)[0])
    trees = tree_batch({0: (20, PARENTS, TOKENS), 1: (11, PARENTS[:3], TOKENS[:3])})
    hidden, features = decoder.forward(trees, cache, capture=(0, 2, 4))
    assert features is not None
    one = decoder.forward(text_batch([9], 20, slot=0), cache)[0]
    return [*out, hidden, features, one]


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_family(shape: dict, paged: bool, tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float32, shape)
    rounded_to_bfloat16(tmp_path)
    decoder = Decoder.from_folder(tmp_path, torch.float32)
    caches = [decoder.new_cache(2, 40), decoder.new_cache(2, 40)]
    if paged:
        caches = [paged_copy(cache, 3, np.random.default_rng(0)) for cache in caches]
    with torch.inference_mode(), taken(decoder_module) as calls:
        got = passes(decoder, caches[0])
    assert calls.call_count == 4 * len(decoder.layers)
    with torch.no_grad(), patch.object(decoder_module, "few_rows", return_value=None):
        wanted = passes(decoder, caches[1])
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    for kind in ("keys", "values"):
        ours, theirs = (getattr(cache, kind) for cache in caches)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("before_residual", [False, True])
@pytest.mark.parametrize("norm_output", [False, True])
def test_draft_head(before_residual: bool, norm_output: bool) -> None:
    target = tiny_decoder(dtype="float32")
    head = tiny_head(target)
    weights = {
        "query_key_value": (64, 64), "output": (32, 32), "gate_up": (128, 32), "down": (32, 64),
    }  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    for name, shape in weights.items():
        weight = (0.2 * torch.randn(shape, generator=generator)).bfloat16().float()
        setattr(head, name, Linear(weight))
    products = head.query_key_value, head.output, head.gate_up, head.down
    head.arrays = layer_arrays(products, head.post_norm)
    head.config = replace(
        head.config, norm_before_residual=before_residual, norm_output=norm_output
    )
    states = torch.randn(4, 32, generator=generator)
    batch = text_batch([3, 1, 4, 1])
    with torch.inference_mode(), taken(head_module) as calls:
        got = head.forward(batch, states, head.new_cache(1, 8))
    assert calls.call_count == 1
    with torch.no_grad(), patch.object(head_module, "few_rows", return_value=None):
        wanted = head.forward(batch, states, head.new_cache(1, 8))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def test_who_goes_the_general_way() -> None:
    target = tiny_decoder(dtype="float32")
    assert all(layer.arrays is None for layer in target.layers)  # bfloat16 does not hold these
    cache = target.new_cache(1, 2 * NARROW_ROWS)
    tables = target.cos, target.sin
    with torch.inference_mode():
        assert few_rows(text_batch([1] * NARROW_ROWS), cache, 2, tables) is not None
        assert few_rows(text_batch([1] * (NARROW_ROWS + 1)), cache, 2, tables) is None
    assert few_rows(text_batch([1]), cache, 2, tables) is None  # gradients may be asked for
