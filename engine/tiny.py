"""A server around a tiny random decoder and drafter: every code path in milliseconds, no files.

For tests and for trying a controller: its text is noise, its acceptance is whatever a random
drafter gives, but the engine, the clock and the kernels are the real ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.compute import DTYPES, choose_device
from engine.drafters.build import DRAFTERS, DraftNetwork
from engine.errors import UserError
from engine.protocol import Limits
from engine.serving import LiveServer
from models.decoder import Decoder, DecoderConfig
from models.draft_head import DraftHead, DraftHeadConfig

LAYERS = 8  # the fewest whose three feature layers differ comfortably
DRAFT_LAYERS = 5  # of the tiny draft model: with these it agrees now and then


def tiny_decoder(
    seed: int = 0,
    vocab: int = 64,
    dtype: str = "float64",
    layers: int = LAYERS,
    device: torch.device | None = None,
) -> Decoder:
    """Layers of width 32 with random weights, scaled so that tokens compete.

    With fewer layers it is the bottom of the larger one of the same seed: a draft model for it.
    `device` None is the CPU; the numbers are the same on all.
    """
    config = DecoderConfig(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=64,
        layers=layers,
        heads=4,
        kv_heads=2,
        head_dim=8,
        norm_eps=1e-5,
        rope_base=10_000.0,
        context=2048,
        tied=False,
    )
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int, scale: float = 0.2) -> Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

    weights = {
        "model.embed_tokens.weight": random(vocab, 32, scale=1.0),
        "model.norm.weight": torch.ones(32),
        "lm_head.weight": random(vocab, 32, scale=0.5),
    }
    for layer in range(config.layers):
        shapes = {
            "self_attn.q_proj": (32, 32),
            "self_attn.k_proj": (16, 32),
            "self_attn.v_proj": (16, 32),
            "self_attn.o_proj": (32, 32),
            "mlp.gate_proj": (64, 32),
            "mlp.up_proj": (64, 32),
            "mlp.down_proj": (32, 64),
        }
        for name, shape in shapes.items():
            weights[f"model.layers.{layer}.{name}.weight"] = random(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{name}.weight"] = torch.ones(32)
    return Decoder(config, weights, DTYPES[dtype], device)


def tiny_head(decoder: Decoder, seed: int = 0) -> DraftHead:
    """A head for `tiny_decoder`, random except that its output rows are the target's own.

    That makes it agree with the target now and then, so that tests see accepted drafts.
    """
    config = DraftHeadConfig.for_target(decoder.config, decoder.config.vocab_size)
    generator = torch.Generator().manual_seed(seed + 1)

    def random(*shape: int) -> Tensor:
        return 0.05 * torch.randn(*shape, generator=generator, dtype=torch.float64)

    h, inner, kv = config.hidden_size, config.intermediate_size, 16
    latest = torch.cat((torch.zeros(h, 2 * h), torch.eye(h)), dim=1)
    weights = {
        "fc.weight": latest + random(h, 3 * h),
        "midlayer.self_attn.q_proj.weight": random(h, 2 * h),
        "midlayer.self_attn.k_proj.weight": random(kv, 2 * h),
        "midlayer.self_attn.v_proj.weight": random(kv, 2 * h),
        "midlayer.self_attn.o_proj.weight": random(h, h),
        "midlayer.mlp.gate_proj.weight": random(inner, h),
        "midlayer.mlp.up_proj.weight": random(inner, h),
        "midlayer.mlp.down_proj.weight": random(h, inner),
        "midlayer.input_layernorm.weight": torch.ones(h),
        "midlayer.hidden_norm.weight": torch.ones(h),
        "midlayer.post_attention_layernorm.weight": torch.ones(h),
        "norm.weight": torch.ones(h),
        "lm_head.weight": decoder.head_weight(),
        "d2t": torch.zeros(config.draft_vocab_size, dtype=torch.int64),
    }
    return DraftHead(config, weights, decoder.embedding, decoder.dtype)


def tiny_server(
    seed: int = 0,
    vocab: int = 64,
    dtype: str = "float64",
    limits: Limits | None = None,
    capacity_tokens: int = 256,
    drafter: str = "eagle3",
    attention: str = "auto",
    device: str = "cpu",
) -> LiveServer:
    """A `LiveServer` on the tiny networks; its tokenizer is None, prompts are lists of ids.

    Raises UserError for an unknown drafter or attention, and for a device that is not there.
    """
    place = choose_device(device)
    decoder = tiny_decoder(seed, vocab, dtype, device=place)
    network: DraftNetwork | None = None
    if drafter == "eagle3":
        network = tiny_head(decoder, seed)
    elif drafter == "model":
        network = tiny_decoder(seed, vocab, dtype, DRAFT_LAYERS, place)
    elif drafter not in DRAFTERS:
        raise UserError(f"no drafter is called {drafter!r}; known are {', '.join(DRAFTERS)}")
    return LiveServer(
        decoder, network, None, limits or Limits(), capacity_tokens, "tiny", attention=attention
    )
