"""The target network: a Llama, Qwen2.5 or Qwen3 decoder that reads and writes slots of a KV cache.

It knows tokens, positions and masks. It does not know requests, objectives or trees: a tree is
just a mask in which a token sees its ancestors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from models.attention import Attention, AttentionBackend, PlainAttention, attend_new
from models.checkpoint import check_tensors, read_tensors
from models.decoder_config import DecoderConfig
from models.fused_layer import FewRows, few_rows, layer_arrays, run_layer
from models.kv_cache import KVCache, TokenBatch
from models.layers import Linear, rms_norm, rotary_tables, swiglu


class DecoderLayer:
    """Weights of one layer, query/key/value and gate/up fused into one product each."""

    def __init__(self, config: DecoderConfig, weight: Callable[[str], Tensor], prefix: str) -> None:
        def get(name: str, kind: str = "weight") -> Tensor:
            return weight(f"{prefix}.{name}.{kind}")

        attention = [f"self_attn.{name}_proj" for name in ("q", "k", "v")]
        self.query_key_value = Linear(torch.cat([get(name) for name in attention]))
        self.bias: Tensor | None = None  # of query, key and value: Qwen2.5
        if config.qkv_bias:
            self.bias = torch.cat([get(name, "bias") for name in attention])
        self.head_norms: list[tuple[slice, Tensor]] = []  # columns and their norm: Qwen3
        if config.head_norms:
            queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
            self.head_norms = [
                (slice(0, queries), get("self_attn.q_norm")),
                (slice(queries, queries + keys), get("self_attn.k_norm")),
            ]
        self.output = Linear(get("self_attn.o_proj"))
        self.gate_up = Linear(torch.cat([get("mlp.gate_proj"), get("mlp.up_proj")]))
        self.down = Linear(get("mlp.down_proj"))
        self.input_norm = get("input_layernorm")
        self.post_norm = get("post_attention_layernorm")
        self.arrays = layer_arrays(
            (self.query_key_value, self.output, self.gate_up, self.down),
            self.post_norm,
            self.input_norm,
            self.bias,
            (self.head_norms[0][1], self.head_norms[1][1]) if self.head_norms else None,
        )

    def project(self, x: Tensor, eps: float) -> Tensor:
        """Query, key and value [T, (heads + 2 kv_heads) * head_dim] of normed inputs x [T, h]."""
        mixed = self.query_key_value(x)
        if self.bias is not None:
            mixed += self.bias
        for columns, weight in self.head_norms:
            by_head = mixed[:, columns].reshape(-1, weight.numel())
            mixed[:, columns] = rms_norm(by_head, weight, eps).view(len(x), -1)
        return mixed


class Decoder:
    """Target model with its weights in one dtype, on their device; `attention` may be exchanged."""

    def __init__(
        self,
        config: DecoderConfig,
        weights: dict[str, Tensor],
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:
        """Weights go to `device` layer by layer; None leaves them where they are."""

        def weight(name: str) -> Tensor:
            return weights[name].to(device=device, dtype=dtype)

        self.config, self.dtype = config, dtype
        self.attention: AttentionBackend = PlainAttention()
        self.embedding = weight("model.embed_tokens.weight")
        self.layers = [
            DecoderLayer(config, weight, f"model.layers.{i}") for i in range(config.layers)
        ]
        self.compiled = all(layer.arrays is not None for layer in self.layers)
        self.norm = weight("model.norm.weight")
        self._head_weight = self.embedding if config.tied else weight("lm_head.weight")
        self.head = Linear(self._head_weight)
        tables = rotary_tables(
            config.head_dim, config.context, config.rope_base, dtype, config.rope_scaling
        )
        self.cos, self.sin = (table.to(self.device) for table in tables)

    @classmethod
    def from_folder(
        cls, folder: Path, dtype: torch.dtype, device: torch.device | None = None
    ) -> Decoder:
        """Load a Hugging Face folder; raises UserError that lists all in which it does not fit.

        `device` None is the CPU.
        """
        config, weights = DecoderConfig.from_folder(folder), read_tensors(folder)
        check_tensors(folder, weights, config.tensor_shapes(), config.tied_shapes())
        return cls(config, weights, dtype, device)

    @property
    def device(self) -> torch.device:
        """Where the weights are, and where passes run."""
        return self.embedding.device

    def new_cache(self, slots: int, capacity: int) -> KVCache:
        """An empty cache for `slots` requests of at most `capacity` tokens, tree included."""
        c = self.config
        return KVCache(c.layers, slots, c.kv_heads, capacity, c.head_dim, self.dtype, self.device)

    def forward(
        self,
        batch: TokenBatch,
        cache: KVCache,
        capture: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor | None]:
        """Run T tokens: normed hidden [T, h], and the inputs of the `capture` layers [T, 3h].

        The batch is on the host, what comes back is on the network's device.
        """
        c = self.config
        plan: Attention | FewRows | None = None
        if self.compiled and self.attention.compiled_layers:
            plan = few_rows(batch, cache, c.heads // c.kv_heads, (self.cos, self.sin))
        if plan is None:
            plan = self.attention.plan(batch, cache, c.heads)
        return self.run(batch.on(self.device), plan, cache, capture)

    def run(
        self,
        batch: TokenBatch,
        plan: Attention | FewRows,
        cache: KVCache,
        capture: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor | None]:
        """The planned pass as `forward` gives it, over a batch that is on the network's device.

        On a card this is work for the card alone, which nothing here waits for or copies to: it is
        what a CUDA graph captures.
        """
        c, tables = self.config, (self.cos, self.sin)
        hidden = self.embedding[batch.tokens]
        captured: dict[int, Tensor] = {}
        for index, layer in enumerate(self.layers):
            if index in capture:
                captured[index] = hidden.clone()  # a compiled layer changes it in place
            if isinstance(plan, FewRows):
                stream, keys, values = hidden.numpy(), cache.keys[index], cache.values[index]
                run_layer(
                    layer.arrays, plan, stream, stream, keys.numpy(), values.numpy(), c.heads,
                    c.norm_eps,
                )  # fmt: skip
                continue
            x = rms_norm(hidden, layer.input_norm, c.norm_eps)
            mixed = layer.project(x, c.norm_eps)
            attended = attend_new(plan, index, mixed, c.heads, tables, batch, cache)
            hidden = hidden + layer.output(attended)
            x = rms_norm(hidden, layer.post_norm, c.norm_eps)
            hidden = hidden + swiglu(x, layer.gate_up, layer.down)
        features = torch.cat([captured[i] for i in capture], dim=-1) if capture else None
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
