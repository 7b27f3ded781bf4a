"""An EAGLE-3 draft head: one decoder layer that guesses on from the target's own features.

Row i of the head pairs the target's state at position i with the token at i + 1 and predicts the
token at i + 2. On committed text the state is made of true target features (`combine`); while it
drafts, the state is the head's own output one row before. Architecture and tensor names are those
of the public EAGLE-3 checkpoints (Li et al. 2025; research/engines.md section 2).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.attention import plan_attention
from models.decoder import DecoderConfig, read_tensors
from models.errors import UserError
from models.kv_cache import KVCache, TokenBatch
from models.layers import Linear, rms_norm, rotary_tables, rotate_and_store, swiglu


@dataclass(frozen=True)
class DraftHeadConfig:
    """Shape of a head; names are those of the checkpoint's `config.json`."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int

    @classmethod
    def for_target(cls, target: DecoderConfig, draft_vocab_size: int) -> DraftHeadConfig:
        """A head of the target's own width."""
        return cls(
            hidden_size=target.hidden_size,
            intermediate_size=target.intermediate_size,
            num_attention_heads=target.heads,
            num_key_value_heads=target.kv_heads,
            head_dim=target.head_dim,
            vocab_size=target.vocab_size,
            draft_vocab_size=draft_vocab_size,
            rms_norm_eps=target.norm_eps,
            rope_theta=target.rope_base,
            max_position_embeddings=target.context,
        )

    @classmethod
    def from_folder(cls, folder: Path) -> DraftHeadConfig:
        """Read `config.json`; raises UserError when it or a key of it is missing."""
        try:
            raw = json.loads((folder / "config.json").read_text())
        except (OSError, ValueError) as error:
            raise UserError(
                f"{folder}: no draft head ({error}); expected a folder with config.json and "
                "model.safetensors, as `python -m models.distill` writes it"
            ) from error
        missing = [name for name in cls.__dataclass_fields__ if name not in raw]
        if missing:
            raise UserError(f"{folder}/config.json lacks {', '.join(missing)}; expected a head's")
        return cls(**{name: raw[name] for name in cls.__dataclass_fields__})

    def to_json(self) -> str:
        """The public format's `config.json`."""
        extra = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        }
        return json.dumps(extra | asdict(self), indent=2) + "\n"


class DraftHead:
    """EAGLE-3 head with its weights in one dtype; the embedding is the target's."""

    def __init__(
        self,
        config: DraftHeadConfig,
        weights: dict[str, Tensor],
        embedding: Tensor,
        dtype: torch.dtype,
    ) -> None:
        def get(name: str) -> Tensor:
            return weights[f"{name}.weight"].to(dtype)

        self.config, self.dtype, self.embedding = config, dtype, embedding
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
        self.norm = get("norm")
        self.head = Linear(get("lm_head"))
        # d2t holds offsets: target id = draft id + d2t[draft id].
        self.target_ids = torch.arange(config.draft_vocab_size) + weights["d2t"]
        self.cos, self.sin = rotary_tables(
            config.head_dim, config.max_position_embeddings, config.rope_theta, dtype
        )

    @classmethod
    def from_folder(cls, folder: Path, embedding: Tensor, dtype: torch.dtype) -> DraftHead:
        """Load a checkpoint folder; raises UserError unless it is whole and fits the target."""
        config = DraftHeadConfig.from_folder(folder)
        if embedding.shape != (config.vocab_size, config.hidden_size):
            raise UserError(
                f"{folder}: the head is for a target of {config.vocab_size} tokens and width "
                f"{config.hidden_size}, got {tuple(embedding.shape)}; use the head of this target"
            )
        weights = read_tensors(folder)
        try:
            return cls(config, weights, embedding, dtype)
        except KeyError as error:
            raise UserError(f"{folder}: the head's weights lack {error}; give all") from error

    def new_cache(self, slots: int, capacity: int) -> KVCache:
        """An empty cache of one layer."""
        c = self.config
        return KVCache(1, slots, c.num_key_value_heads, capacity, c.head_dim, self.dtype)

    def combine(self, features: Tensor) -> Tensor:
        """Target features [T, 3h] to head states [T, h]."""
        return self.fuse(features)

    def forward(self, batch: TokenBatch, states: Tensor, cache: KVCache) -> Tensor:
        """Run T rows with states [T, h]; returns the outputs [T, h], states of the next step."""
        c = self.config
        plan = plan_attention(batch, c.num_attention_heads // c.num_key_value_heads, self.dtype)
        tokens = rms_norm(self.embedding[batch.tokens], self.token_norm, c.rms_norm_eps)
        hidden = rms_norm(states, self.state_norm, c.rms_norm_eps)
        mixed = self.query_key_value(torch.cat((tokens, hidden), dim=-1))
        query = rotate_and_store(
            mixed, c.num_attention_heads, (self.cos, self.sin), batch, cache, 0
        )
        attended = plan.attend(0, query, cache, batch.first_slot, batch.end_slot)
        states = states + self.output(attended)
        x = rms_norm(states, self.post_norm, c.rms_norm_eps)
        return states + swiglu(x, self.gate_up, self.down)

    def logits(self, states: Tensor) -> Tensor:
        """Logits over the draft vocabulary [T, draft_vocab] of outputs [T, h]."""
        return self.head(rms_norm(states, self.norm, self.config.rms_norm_eps))

    def weight_bytes(self) -> int:
        """Bytes read by one draft step of one token."""
        parts = (self.query_key_value, self.output, self.gate_up, self.down, self.head)
        return sum(linear.n_bytes for linear in parts)
