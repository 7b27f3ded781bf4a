"""Networks of known shapes with random weights, made on the device that they run on.

What a step costs hangs on shapes alone, so a machine without the weights, or without a network to
fetch them, can still be measured. The text of such networks is noise.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from models.decoder import Decoder
from models.decoder_config import DecoderConfig, Shapes
from models.draft_head import DraftHead
from models.errors import UserError
from models.head_config import DraftHeadConfig
from models.rope import Llama3Scaling

CPU = torch.device("cpu")


class Pair(NamedTuple):
    """A target's shape and its draft head's."""

    target: DecoderConfig
    head: DraftHeadConfig


_SMOLLM2 = DecoderConfig(
    vocab_size=49_152,
    hidden_size=576,
    intermediate_size=1536,
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim=64,
    norm_eps=1e-5,
    rope_base=100_000.0,
    context=8192,
    tied=True,
)
_LLAMA_8B = DecoderConfig(
    vocab_size=128_256,
    hidden_size=4096,
    intermediate_size=14_336,
    layers=32,
    heads=32,
    kv_heads=8,
    head_dim=128,
    norm_eps=1e-5,
    rope_base=500_000.0,
    context=131_072,
    tied=False,
    rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 8192),
)
_PAIRS: dict[str, Pair] = {
    "smollm2-135m-instruct": Pair(_SMOLLM2, DraftHeadConfig.for_target(_SMOLLM2, 8192)),
    # The public head of the 8B target has fewer positions, which costs nothing.
    "llama-3.1-8b-instruct": Pair(_LLAMA_8B, DraftHeadConfig.for_target(_LLAMA_8B, 32_000)),
}


def pair_of(name: str) -> Pair:
    """The shapes of a registered model and its head; raises UserError for one without."""
    if name not in _PAIRS:
        raise UserError(f"the shapes of {name} are not known here; known are {', '.join(_PAIRS)}")
    return _PAIRS[name]


def random_decoder(
    config: DecoderConfig,
    dtype: torch.dtype,
    device: torch.device = CPU,
    seed: int = 0,
    drawn_on: torch.device | None = None,
) -> Decoder:
    """A target of that shape in `dtype` on `device`.

    Products are scaled by their inputs, so that states stay near 1 and logits are finite in every
    dtype. A seed gives the same weights on the same kind of device; with `drawn_on` they are drawn
    there in float32, and are the same for every `device` and `dtype` but for rounding.
    """
    weights = random_tensors(config.tensor_shapes(), dtype, device, seed, drawn_on)
    return Decoder(config, weights, dtype, device)


def random_head(
    config: DraftHeadConfig,
    target: Decoder,
    dtype: torch.dtype,
    seed: int = 0,
    drawn_on: torch.device | None = None,
) -> DraftHead:
    """A draft head of that shape over the target's embedding, on its device.

    Its draft vocabulary is the first tokens of the target's. `drawn_on` as in `random_decoder`.
    """
    weights = random_tensors(config.tensor_shapes(), dtype, target.device, seed, drawn_on)
    return DraftHead(config, weights, target.embedding.to(dtype), dtype)


def random_tensors(
    shapes: Shapes,
    dtype: torch.dtype,
    device: torch.device,
    seed: int,
    drawn_on: torch.device | None = None,
) -> dict[str, Tensor]:
    """A tensor of every name: products drawn, norms 1, biases and vocabulary offsets 0."""
    if drawn_on is not None:
        dtype, device = torch.float32, drawn_on
    generator = torch.Generator(device=device).manual_seed(seed)
    made = {}
    for name, shape in shapes.items():
        if name == "d2t":
            made[name] = torch.zeros(shape, dtype=torch.int64, device=device)
        elif len(shape) == 1:
            fill = torch.zeros if name.endswith("bias") else torch.ones
            made[name] = fill(shape, dtype=dtype, device=device)
        else:
            drawn = torch.randn(shape, generator=generator, dtype=dtype, device=device)
            made[name] = drawn.mul_(1.0 if "embed_tokens" in name else shape[-1] ** -0.5)
    return made
