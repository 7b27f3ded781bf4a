"""An EAGLE-3 draft head: one decoder layer that guesses on from the target's own features.

Row i of the head pairs the target's state at position i with the token at i + 1 and predicts the
token at i + 2. On committed text the state is made of true target features (`combine`); while it
drafts, the state is the head's own output one row before. Architecture and tensor names are those
of the public EAGLE-3 checkpoints (Li et al. 2025; research/engines.md section 2), with the norms
that later heads added; `models.head_config` reads what a checkpoint has of them.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from models.attention import Attention, AttentionBackend, PlainAttention, attend_new
from models.fused_layer import FewRows, few_rows, layer_arrays, run_layer
from models.head_checkpoint import read_head, target_ids
from models.head_config import FEATURES, DraftHeadConfig
from models.kv_cache import KVCache, TokenBatch
from models.layers import Linear, rms_norm, rotary_tables, swiglu


class DraftHead:
    """EAGLE-3 head with its weights in one dtype; the embedding is the target's or its own.

    The weights go to where the embedding is. `attention` may be exchanged.
    """

    def __init__(
        self,
        config: DraftHeadConfig,
        weights: dict[str, Tensor],
        embedding: Tensor,
        dtype: torch.dtype,
    ) -> None:
        def get(name: str) -> Tensor:
            return weights[f"{name}.weight"].to(device=embedding.device, dtype=dtype)

        self.config, self.dtype, self.embedding = config, dtype, embedding
        self.attention: AttentionBackend = PlainAttention()
        attention = [get(f"midlayer.self_attn.{name}_proj") for name in ("q", "k", "v")]
        self.fuse = Linear(get("fc"))
        self.query_key_value = Linear(torch.cat(attention))
        self.output = Linear(get("midlayer.self_attn.o_proj"))
        self.gate_up = Linear(
            torch.cat([get("midlayer.mlp.gate_proj"), get("midlayer.mlp.up_proj")])
        )
        self.down = Linear(get("midlayer.mlp.down_proj"))
        self.token_norm = get("midlayer.input_layernorm")
        self.state_norm = get("midlayer.hidden_norm")
        self.post_norm = get("midlayer.post_attention_layernorm")
        products = self.query_key_value, self.output, self.gate_up, self.down
        self.arrays = layer_arrays(products, self.post_norm)
        self.norm = get("norm")
        self.head = Linear(get("lm_head"))
        self.joint_norm = get("input_norm") if config.norm_before_fc else None
        self.feature_norms: list[Tensor] = []
        if config.fc_norm:
            self.feature_norms = [get(f"fc_norm.{i}") for i in range(FEATURES)]
        ids = target_ids(weights.get("d2t"), config.draft_vocab_size)
        self.target_ids = ids.to(self.device)
        tables = rotary_tables(
            config.head_dim,
            config.max_position_embeddings,
            config.rope_theta,
            dtype,
            config.rope_scaling,
        )
        self.cos, self.sin = (table.to(self.device) for table in tables)

    @classmethod
    def from_folder(cls, folder: Path, embedding: Tensor, dtype: torch.dtype) -> DraftHead:
        """Load a checkpoint folder; raises UserError unless it is whole and fits the target."""
        config = DraftHeadConfig.from_folder(folder)
        weights, embedding = read_head(folder, config, embedding)
        return cls(config, weights, embedding.to(dtype), dtype)

    @property
    def device(self) -> torch.device:
        """Where the weights are, and where passes run."""
        return self.embedding.device

    def feature_layers(self, target_layers: int) -> tuple[int, int, int]:
        """Layers of a target of `target_layers` whose inputs `combine` takes, low to high."""
        return self.config.feature_layers(target_layers)

    def new_cache(self, slots: int, capacity: int) -> KVCache:
        """An empty cache of one layer."""
        c = self.config
        return KVCache(
            1, slots, c.num_key_value_heads, capacity, c.head_dim, self.dtype, self.device
        )

    def combine(self, features: Tensor) -> Tensor:
        """Target features [T, 3 target widths], low to high, to head states [T, h]."""
        eps = self.config.rms_norm_eps
        if self.feature_norms:
            parts = zip(features.chunk(FEATURES, dim=-1), self.feature_norms, strict=True)
            normed = [rms_norm(part.contiguous(), weight, eps) for part, weight in parts]
            features = torch.cat(normed, dim=-1)
        if self.joint_norm is not None:
            features = rms_norm(features, self.joint_norm, eps)
        return self.fuse(features)

    def forward(self, batch: TokenBatch, states: Tensor, cache: KVCache) -> Tensor:
        """Run T rows with states [T, h]; returns the outputs [T, h], states of the next step.

        The batch is on the host, states and outputs are on the network's device.
        """
        c = self.config
        heads, groups = c.num_attention_heads, c.num_attention_heads // c.num_key_value_heads
        plan: Attention | FewRows | None = None
        if self.arrays is not None and self.attention.compiled_layers:
            plan = few_rows(batch, cache, groups, (self.cos, self.sin))
        if plan is None:
            plan = self.attention.plan(batch, cache, heads)
        return self.run(batch.on(self.device), plan, states, cache)

    def run(
        self, batch: TokenBatch, plan: Attention | FewRows, states: Tensor, cache: KVCache
    ) -> Tensor:
        """The planned pass as `forward` gives it, over a batch that is on the network's device.

        On a card this is work for the card alone, as `Decoder.run` is.
        """
        c = self.config
        tokens = rms_norm(self.embedding[batch.tokens], self.token_norm, c.rms_norm_eps)
        normed = rms_norm(states, self.state_norm, c.rms_norm_eps)
        states = normed if c.norm_before_residual else states
        states = self._run_layer(torch.cat((tokens, normed), dim=-1), states, batch, plan, cache)
        return rms_norm(states, self.norm, c.rms_norm_eps) if c.norm_output else states

    def _run_layer(
        self,
        x: Tensor,
        states: Tensor,
        batch: TokenBatch,
        plan: Attention | FewRows,
        cache: KVCache,
    ) -> Tensor:
        """The residual stream after the layer, whose input is x [T, 2h]."""
        c, tables = self.config, (self.cos, self.sin)
        heads = c.num_attention_heads
        if isinstance(plan, FewRows):
            states = states.clone(memory_format=torch.contiguous_format)
            keys, values = cache.keys[0].numpy(), cache.values[0].numpy()
            run_layer(
                self.arrays, plan, x.numpy(), states.numpy(), keys, values, heads, c.rms_norm_eps
            )
            return states
        attended = attend_new(plan, 0, self.query_key_value(x), heads, tables, batch, cache)
        states = states + self.output(attended)
        x = rms_norm(states, self.post_norm, c.rms_norm_eps)
        return states + swiglu(x, self.gate_up, self.down)

    def logits(self, states: Tensor) -> Tensor:
        """Logits over the draft vocabulary [T, draft_vocab] of outputs [T, h]."""
        if not self.config.norm_output:
            states = rms_norm(states, self.norm, self.config.rms_norm_eps)
        return self.head(states)

    def weight_bytes(self) -> int:
        """Bytes read by one draft step of one token."""
        parts = (self.query_key_value, self.output, self.gate_up, self.down, self.head)
        return sum(linear.n_bytes for linear in parts)
