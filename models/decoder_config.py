"""The shape of a target network, read from the `config.json` of a Hugging Face folder.

Three families share one decoder: Llama (2, 3, 3.1, 3.2), Qwen2.5 (which calls itself qwen2), whose
query, key and value have biases, and Qwen3, which norms each query and key head. The network is
`models.decoder`, reading weights is `models.checkpoint`. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from models.config_file import read_config, require_keys, require_served
from models.errors import UserError
from models.rope import Llama3Scaling, read_rope

Shapes = dict[str, tuple[int, ...]]

REQUIRED = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "rms_norm_eps", "max_position_embeddings",
)  # fmt: skip


@dataclass(frozen=True)
class Family:
    """In what a family differs from Llama."""

    qkv_bias: bool = False
    head_norms: bool = False
    # Keys whose absence transformers fills with a number of its own instead of a derived one.
    required: tuple[str, ...] = ()


FAMILIES = {
    "llama": Family(),
    "qwen2": Family(qkv_bias=True, required=("num_key_value_heads",)),
    "qwen3": Family(head_norms=True, required=("num_key_value_heads", "head_dim")),
}


@dataclass(frozen=True)
class DecoderConfig:
    """Shape of a decoder."""

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
    rope_scaling: Llama3Scaling | None = None
    qkv_bias: bool = False
    head_norms: bool = False

    @classmethod
    def from_folder(cls, folder: Path) -> DecoderConfig:
        """Read `config.json`; raises UserError for what would be computed wrongly."""
        raw = read_config(folder, "model")
        family = FAMILIES.get(raw.get("model_type", ""))
        if family is None:
            raise UserError(
                f"{folder}: model_type is {raw.get('model_type')!r}, expected one of "
                f"{', '.join(FAMILIES)}; other families are not served yet"
            )
        require_keys(folder, raw, (*REQUIRED, *family.required), "model")
        require_served(
            folder,
            (
                ("hidden_act", raw.get("hidden_act", "silu"), "silu"),
                ("attention_bias", raw.get("attention_bias") or False, False),
                ("mlp_bias", raw.get("mlp_bias") or False, False),
                ("use_sliding_window", raw.get("use_sliding_window") or False, False),
                ("quantization_config", raw.get("quantization_config"), None),
            ),
        )
        heads = raw["num_attention_heads"]
        rope_base, rope_scaling = read_rope(raw, folder)
        return cls(
            vocab_size=raw["vocab_size"],
            hidden_size=raw["hidden_size"],
            intermediate_size=raw["intermediate_size"],
            layers=raw["num_hidden_layers"],
            heads=heads,
            kv_heads=raw.get("num_key_value_heads") or heads,
            head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
            norm_eps=raw["rms_norm_eps"],
            rope_base=rope_base,
            context=raw["max_position_embeddings"],
            tied=bool(raw.get("tie_word_embeddings", False)),
            rope_scaling=rope_scaling,
            qkv_bias=family.qkv_bias,
            head_norms=family.head_norms,
        )

    @property
    def feature_layers(self) -> tuple[int, int, int]:
        """Layers whose inputs feed an EAGLE-3 head: 2, n//2, n-3 (EAGLE's convention)."""
        return 2, self.layers // 2, self.layers - 3

    def tensor_shapes(self) -> Shapes:
        """Every tensor that the checkpoint must hold, under its public name."""
        h = self.hidden_size
        shapes: Shapes = {"model.embed_tokens.weight": (self.vocab_size, h)}
        layer = self._layer_shapes()
        for index in range(self.layers):
            shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
        shapes["model.norm.weight"] = (h,)
        return shapes if self.tied else shapes | self.tied_shapes()

    def tied_shapes(self) -> Shapes:
        """The output rows, which a checkpoint with tied embeddings may hold a second time."""
        return {"lm_head.weight": (self.vocab_size, self.hidden_size)}

    def _layer_shapes(self) -> Shapes:
        h, inner = self.hidden_size, self.intermediate_size
        query, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        rows = {"q": query, "k": kv, "v": kv}
        shapes: Shapes = {f"self_attn.{name}_proj.weight": (n, h) for name, n in rows.items()}
        if self.qkv_bias:
            shapes |= {f"self_attn.{name}_proj.bias": (n,) for name, n in rows.items()}
        if self.head_norms:
            shapes |= {f"self_attn.{name}_norm.weight": (self.head_dim,) for name in ("q", "k")}
        return shapes | {
            "self_attn.o_proj.weight": (h, query),
            "mlp.gate_proj.weight": (inner, h),
            "mlp.up_proj.weight": (inner, h),
            "mlp.down_proj.weight": (h, inner),
            "input_layernorm.weight": (h,),
            "post_attention_layernorm.weight": (h,),
        }
