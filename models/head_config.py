"""The shape of an EAGLE-3 draft head, read from either public format's `config.json`.

The flat format (EAGLE, SpecForge, our own) states the head's layer at the top level and extras in
`eagle_config`; the speculators format nests the layer in `transformer_layer_config`. They differ in
defaults and in how they count layers (research/engines.md sections 2.3 and 2.4). Tensors are read
by `models.head_checkpoint`, the network is `models.draft_head`. Nothing here imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models.config_file import read_config, require_keys, require_served
from models.decoder_config import DecoderConfig, Shapes
from models.errors import UserError
from models.rope import Llama3Scaling, read_rope

FEATURES = 3  # target states that a head fuses: low, middle, high
REQUIRED = (
    "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "rms_norm_eps",
    "max_position_embeddings", "draft_vocab_size",
)  # fmt: skip
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class DraftHeadConfig:
    """Shape of a head; names are those of the flat format's `config.json`."""

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
    norm_before_residual: bool = False
    """The residual is the state behind its norm, not the one before it."""
    norm_before_fc: bool = False
    """One norm over the three target states together."""
    fc_norm: bool = False
    """A norm for each of the three target states."""
    norm_output: bool = False
    """The state handed to the next draft step is the normed output."""
    target_hidden_size: int | None = None
    """Width of the target's states where it is not the head's own."""
    rope_scaling: Llama3Scaling | None = None
    layer_inputs: tuple[int, ...] | None = None
    """Target layers whose inputs are the features, None for EAGLE's own choice."""
    moved_by: int = -1
    """By how much the list is off if it was moved here from the other format without recounting."""

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
        """Read `config.json`; raises UserError for what is missing or would be computed wrongly."""
        raw = read_config(folder, "draft head")
        nested = raw.get("eagle_config") or {}
        speculators = "transformer_layer_config" in raw
        layer = raw["transformer_layer_config"] if speculators else raw

        def stated(name: str, default: Any = None) -> Any:
            """A key of the head as a whole, wherever the file keeps such keys."""
            found = [place[name] for place in (raw, nested) if place.get(name) is not None]
            return found[0] if found else default

        keys = {**layer, "draft_vocab_size": stated("draft_vocab_size")}
        require_keys(folder, keys, REQUIRED, "draft head")
        windows = layer.get("use_sliding_window") or "sliding_attention" in (
            layer.get("layer_types") or ()
        )
        require_served(
            folder,
            (
                ("speculators_model_type", raw.get("speculators_model_type", "eagle3"), "eagle3"),
                ("num_hidden_layers", layer.get("num_hidden_layers", 1), 1),
                ("num_aux_hidden_states", stated("num_aux_hidden_states", FEATURES), FEATURES),
                ("hidden_act", layer.get("hidden_act", "silu"), "silu"),
                ("attention_bias", layer.get("attention_bias") or False, False),
                ("mlp_bias", layer.get("mlp_bias") or False, False),
                ("sliding window attention", bool(windows), False),
            ),
        )
        heads = layer["num_attention_heads"]
        # A base that is not stated is the format's default, never the target's.
        rope_theta, rope_scaling = read_rope(layer, folder)
        return cls(
            hidden_size=layer["hidden_size"],
            intermediate_size=layer["intermediate_size"],
            num_attention_heads=heads,
            num_key_value_heads=layer.get("num_key_value_heads") or heads,
            head_dim=layer.get("head_dim") or layer["hidden_size"] // heads,
            vocab_size=layer["vocab_size"],
            draft_vocab_size=keys["draft_vocab_size"],
            rms_norm_eps=layer["rms_norm_eps"],
            rope_theta=rope_theta,
            max_position_embeddings=layer["max_position_embeddings"],
            norm_before_residual=bool(stated("norm_before_residual", speculators)),
            norm_before_fc=bool(stated("norm_before_fc", False)),
            fc_norm=bool(stated("fc_norm", False)),
            norm_output=bool(stated("norm_output", False)),
            target_hidden_size=stated("target_hidden_size"),
            rope_scaling=rope_scaling,
            layer_inputs=_layer_inputs(raw.get(LAYER_IDS), nested.get(LAYER_IDS)),
            moved_by=1 if nested.get(LAYER_IDS) and not raw.get(LAYER_IDS) else -1,
        )

    @property
    def feature_size(self) -> int:
        """Width of each of the three target states."""
        return self.target_hidden_size or self.hidden_size

    def feature_layers(self, target_layers: int) -> tuple[int, int, int]:
        """The three layers of a target of `target_layers` whose inputs are this head's features.

        Without a list: EAGLE's 2, n//2, n-3. Public files count in two ways, and some were moved
        from one format to the other without recounting; a list that is EAGLE's own choice in
        the other format's way of counting is taken for that choice. Raises UserError for a list
        that does not name three layers of the target.
        """
        eagle = (2, target_layers // 2, target_layers - 3)
        if not self.layer_inputs:
            return eagle
        # Engines collect the states in the order of the layers, however the list is ordered.
        chosen = tuple(sorted(self.layer_inputs))
        if any(chosen == tuple(layer + shift for layer in eagle) for shift in (0, self.moved_by)):
            return eagle
        if len(set(chosen)) != FEATURES or not 0 <= chosen[0] <= chosen[-1] < target_layers:
            raise UserError(
                f"the draft head reads the inputs of the target layers {list(chosen)}, expected "
                f"{FEATURES} different layers of a target of {target_layers}; use the head of this "
                "target"
            )
        low, middle, high = chosen
        return low, middle, high

    def tensor_shapes(self) -> Shapes:
        """Every tensor that a checkpoint must hold, under the flat format's names."""
        h, inner, wide = self.hidden_size, self.intermediate_size, FEATURES * self.feature_size
        query = self.num_attention_heads * self.head_dim
        kv = self.num_key_value_heads * self.head_dim
        shapes: Shapes = {
            "fc.weight": (h, wide),
            "midlayer.self_attn.q_proj.weight": (query, 2 * h),
            "midlayer.self_attn.k_proj.weight": (kv, 2 * h),
            "midlayer.self_attn.v_proj.weight": (kv, 2 * h),
            "midlayer.self_attn.o_proj.weight": (h, query),
            "midlayer.mlp.gate_proj.weight": (inner, h),
            "midlayer.mlp.up_proj.weight": (inner, h),
            "midlayer.mlp.down_proj.weight": (h, inner),
            "midlayer.input_layernorm.weight": (h,),
            "midlayer.hidden_norm.weight": (h,),
            "midlayer.post_attention_layernorm.weight": (h,),
            "norm.weight": (h,),
            "lm_head.weight": (self.draft_vocab_size, h),
        }
        if self.norm_before_fc:
            shapes["input_norm.weight"] = (wide,)
        if self.fc_norm:
            shapes |= {f"fc_norm.{i}.weight": (self.feature_size,) for i in range(FEATURES)}
        if self.draft_vocab_size != self.vocab_size:
            shapes["d2t"] = (self.draft_vocab_size,)
        return shapes

    def optional_shapes(self) -> Shapes:
        """Tensors that a checkpoint may hold besides."""
        return {
            "embed_tokens.weight": (self.vocab_size, self.hidden_size),
            "d2t": (self.draft_vocab_size,),
            "t2d": (self.vocab_size,),
        }

    def to_json(self) -> str:
        """The flat format's `config.json`."""
        extra: dict[str, Any] = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        }
        own = {name: value for name, value in asdict(self).items() if value is not None}
        del own["moved_by"]
        if self.rope_scaling is not None:
            own["rope_scaling"] = self.rope_scaling.to_config()
        if inputs := own.pop("layer_inputs", None):
            own["eagle_config"] = {LAYER_IDS: [layer - 1 for layer in inputs]}
        return json.dumps(extra | own, indent=2) + "\n"


def _layer_inputs(
    inputs: Sequence[int] | None, outputs: Sequence[int] | None
) -> tuple[int, ...] | None:
    """The layers as inputs: the top-level list says so, the one in `eagle_config` says outputs."""
    if inputs:
        return tuple(inputs)
    return tuple(layer + 1 for layer in outputs) if outputs else None
