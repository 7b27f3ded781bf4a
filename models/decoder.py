"""The target network: a decoder of the Llama family that reads and writes slots of a KV cache.

It knows tokens, positions and masks. It does not know requests, objectives or trees: a tree is
just a mask in which a token sees its ancestors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from models.attention import plan_attention
from models.errors import UserError
from models.kv_cache import KVCache, TokenBatch
from models.layers import Linear, rms_norm, rotary_tables, rotate_and_store, swiglu

REQUIRED = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "rms_norm_eps", "max_position_embeddings",
)  # fmt: skip


@dataclass(frozen=True)
class DecoderConfig:
    """Shape of a decoder, read from a Hugging Face `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope_base: float
    context: int
    tied: bool

    @classmethod
    def from_folder(cls, folder: Path) -> DecoderConfig:
        """Read `config.json`; raises UserError for another family or a missing key."""
        raw = json.loads((folder / "config.json").read_text())
        if raw.get("model_type") != "llama":
            raise UserError(
                f"{folder}: model_type is {raw.get('model_type')!r}, expected 'llama'; "
                "other families are not served yet"
            )
        if missing := [name for name in REQUIRED if name not in raw]:
            raise UserError(
                f"{folder}/config.json lacks {', '.join(missing)}; give a complete model folder"
            )
        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        for name, value, served in (
            ("rope_type", rope.get("rope_type") or rope.get("type") or "default", "default"),
            ("hidden_act", raw.get("hidden_act", "silu"), "silu"),
            ("attention_bias", raw.get("attention_bias", False), False),
            ("mlp_bias", raw.get("mlp_bias", False), False),
        ):
            if value != served:
                raise UserError(f"{folder}: {name} is {value!r}, only {served!r} is served yet")
        return cls(
            vocab_size=raw["vocab_size"],
            hidden_size=raw["hidden_size"],
            intermediate_size=raw["intermediate_size"],
            layers=raw["num_hidden_layers"],
            heads=raw["num_attention_heads"],
            kv_heads=raw.get("num_key_value_heads", raw["num_attention_heads"]),
            head_dim=raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
            norm_eps=raw["rms_norm_eps"],
            rope_base=float(raw.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
            context=raw["max_position_embeddings"],
            tied=bool(raw.get("tie_word_embeddings", False)),
        )

    @property
    def feature_layers(self) -> tuple[int, int, int]:
        """Layers whose inputs feed an EAGLE-3 head: 2, n//2, n-3 (EAGLE's convention)."""
        return 2, self.layers // 2, self.layers - 3


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files; raises UserError for a damaged one."""
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            tensors.update(load_file(file))
        except SafetensorError as error:
            raise UserError(f"{file} is damaged or cut short ({error}); fetch it again") from error
    return tensors


class DecoderLayer:
    """Weights of one layer, query/key/value and gate/up fused into one product each."""

    def __init__(self, weights: dict[str, Tensor], prefix: str) -> None:
        def get(name: str) -> Tensor:
            return weights[f"{prefix}.{name}.weight"]

        attention = [get(f"self_attn.{name}_proj") for name in ("q", "k", "v")]
        self.query_key_value = Linear(torch.cat(attention))
        self.output = Linear(get("self_attn.o_proj"))
        self.gate_up = Linear(torch.cat([get("mlp.gate_proj"), get("mlp.up_proj")]))
        self.down = Linear(get("mlp.down_proj"))
        self.input_norm = get("input_layernorm")
        self.post_norm = get("post_attention_layernorm")


class Decoder:
    """Target model with its weights in one dtype on the CPU."""

    def __init__(
        self, config: DecoderConfig, weights: dict[str, Tensor], dtype: torch.dtype
    ) -> None:
        self.config, self.dtype = config, dtype
        weights = {name: tensor.to(dtype) for name, tensor in weights.items()}
        self.embedding = weights["model.embed_tokens.weight"]
        self.layers = [DecoderLayer(weights, f"model.layers.{i}") for i in range(config.layers)]
        self.norm = weights["model.norm.weight"]
        self._head_weight = self.embedding if config.tied else weights["lm_head.weight"]
        self.head = Linear(self._head_weight)
        self.cos, self.sin = rotary_tables(config.head_dim, config.context, config.rope_base, dtype)

    @classmethod
    def from_folder(cls, folder: Path, dtype: torch.dtype) -> Decoder:
        """Load a Hugging Face folder; raises UserError when it is damaged or incomplete."""
        config, weights = DecoderConfig.from_folder(folder), read_tensors(folder)
        try:
            return cls(config, weights, dtype)
        except KeyError as error:
            raise UserError(f"{folder}: the weights lack {error}; give all of them") from error

    def new_cache(self, slots: int, capacity: int) -> KVCache:
        """An empty cache for `slots` requests of at most `capacity` tokens, tree included."""
        c = self.config
        return KVCache(c.layers, slots, c.kv_heads, capacity, c.head_dim, self.dtype)

    def forward(
        self,
        batch: TokenBatch,
        cache: KVCache,
        capture: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor | None]:
        """Run T tokens: normed hidden [T, h], and the inputs of the `capture` layers [T, 3h]."""
        c = self.config
        plan = plan_attention(batch, c.heads // c.kv_heads, self.dtype)
        tables = self.cos, self.sin
        hidden = self.embedding[batch.tokens]
        captured = []
        for index, layer in enumerate(self.layers):
            if index in capture:
                captured.append(hidden)
            x = rms_norm(hidden, layer.input_norm, c.norm_eps)
            query = rotate_and_store(layer.query_key_value(x), c.heads, tables, batch, cache, index)
            mixed = plan.attend(index, query, cache, batch.first_slot, batch.end_slot)
            hidden = hidden + layer.output(mixed)
            x = rms_norm(hidden, layer.post_norm, c.norm_eps)
            hidden = hidden + swiglu(x, layer.gate_up, layer.down)
        features = torch.cat(captured, dim=-1) if captured else None
        return rms_norm(hidden, self.norm, c.norm_eps), features

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits [T, vocabulary] of normed hidden states [T, h]."""
        return self.head(hidden)

    def head_weight(self) -> Tensor:
        """Output rows [vocabulary, h], from which a draft head may start."""
        return self._head_weight

    def weight_bytes(self) -> int:
        """Bytes read by one pass over one token (the input embedding's row excluded)."""
        linears = [self.head]
        for layer in self.layers:
            linears += [layer.query_key_value, layer.output, layer.gate_up, layer.down]
        return sum(linear.n_bytes for linear in linears)
