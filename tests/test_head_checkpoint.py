"""Public EAGLE-3 checkpoints in both formats: one test for each way in which they mislead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from models.draft_head import DraftHead
from models.errors import UserError
from models.head_config import DraftHeadConfig
from models.rope import Llama3Scaling
from tests.plain_head import PlainHead
from tests.test_decoder import text_batch

H, INNER, HEADS, KV_HEADS, DIM, VOCAB, DRAFT = 12, 20, 4, 2, 4, 30, 9
LAYER = {
    "model_type": "llama",
    "hidden_size": H,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": DIM,
    "num_hidden_layers": 1,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
}
FLAT = LAYER | {"architectures": ["LlamaForCausalLM"], "draft_vocab_size": DRAFT}
SPECULATORS = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "some/target"}},
    "transformer_layer_config": LAYER,
    "draft_vocab_size": DRAFT,
}
TARGET_IDS = [0, 2, 3, 7, 8, 11, 20, 21, 29]
LAYERS = 32


def random(*shape: int, seed: int = 0, scale: float = 0.4) -> Tensor:
    """Normal numbers in float64."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


EMBEDDING = random(VOCAB, H, seed=1, scale=1.0)


def flat_tensors(target_width: int = H, draft: int = DRAFT) -> dict[str, Tensor]:
    """All that a flat checkpoint of EAGLE's authors holds (embedding aside)."""
    q, kv = HEADS * DIM, KV_HEADS * DIM
    tensors = {
        "fc.weight": random(H, 3 * target_width),
        "midlayer.self_attn.q_proj.weight": random(q, 2 * H, seed=2),
        "midlayer.self_attn.k_proj.weight": random(kv, 2 * H, seed=3),
        "midlayer.self_attn.v_proj.weight": random(kv, 2 * H, seed=4),
        "midlayer.self_attn.o_proj.weight": random(H, q, seed=5),
        "midlayer.mlp.gate_proj.weight": random(INNER, H, seed=6),
        "midlayer.mlp.up_proj.weight": random(INNER, H, seed=7),
        "midlayer.mlp.down_proj.weight": random(H, INNER, seed=8),
        "lm_head.weight": random(draft, H, seed=9),
        "d2t": torch.tensor(TARGET_IDS) - torch.arange(DRAFT),
        "t2d": torch.isin(torch.arange(VOCAB), torch.tensor(TARGET_IDS)),
    }
    norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    for seed, name in enumerate(("norm", *(f"midlayer.{norm}" for norm in norms)), 10):
        tensors[f"{name}.weight"] = 1 + random(H, seed=seed)
    return tensors


def speculators_tensors() -> dict[str, Tensor]:
    """The same under the names of the speculators format."""
    return {n.replace("midlayer.", "layers.0."): t for n, t in flat_tensors().items()}


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    """A checkpoint folder."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def load(folder: Path, embedding: Tensor = EMBEDDING) -> DraftHead:
    """A head in float64."""
    return DraftHead.from_folder(folder, embedding, torch.float64)


TOKENS, AHEAD = [3, 9, 1, 27, 14], [5, 8]


@torch.inference_mode()
def drafted(head: DraftHead, target_width: int = H) -> Tensor:
    """Logits of five true rows and of two on the head's own states."""
    features = random(len(TOKENS), 3 * target_width, seed=20, scale=3.0)
    cache = head.new_cache(1, 16)
    outputs = [head.forward(text_batch(TOKENS), head.combine(features), cache)]
    for row, token in enumerate(AHEAD, len(TOKENS)):
        outputs.append(head.forward(text_batch([token], row), outputs[-1][-1:], cache))
    return head.logits(torch.cat(outputs))


def difference(
    head: DraftHead,
    tensors: dict[str, Tensor],
    embedding: Tensor = EMBEDDING,
    target_width: int = H,
    **uses: Any,
) -> float:
    """Between the loaded head and the plain one."""
    weights = {n.replace("layers.0.", "midlayer."): t for n, t in tensors.items()}
    plain = PlainHead(weights, embedding, HEADS, KV_HEADS, 1e-5, **uses)
    features = random(len(TOKENS), 3 * target_width, seed=20, scale=3.0)
    wanted = plain.draft(TOKENS, features, AHEAD)
    return float((drafted(head, target_width) - wanted).abs().max())


SAME, OTHER = 1e-5, 1e-2  # our angles are float32


def test_the_flat_format_is_read(tmp_path: Path) -> None:
    head = load(write(tmp_path, FLAT, flat_tensors()))
    assert difference(head, flat_tensors()) < SAME
    assert head.target_ids.tolist() == TARGET_IDS


def test_the_speculators_format_is_read(tmp_path: Path) -> None:
    head = load(write(tmp_path, SPECULATORS, speculators_tensors()))
    assert difference(head, speculators_tensors(), norm_before_residual=True) < SAME
    assert head.target_ids.tolist() == TARGET_IDS


@pytest.mark.parametrize("prefix", ["", "model."])
def test_either_name_of_the_layer_is_read_in_either_format(tmp_path: Path, prefix: str) -> None:
    tensors = {prefix + name: tensor for name, tensor in speculators_tensors().items()}
    head = load(write(tmp_path / "a", FLAT, tensors))
    assert difference(head, flat_tensors()) < SAME
    with pytest.raises(UserError, match=r"holds .* twice"):
        load(write(tmp_path / "b", FLAT, tensors | flat_tensors()))


@pytest.mark.parametrize(
    ("config", "stated", "used"),
    [
        (FLAT, None, False),
        (FLAT, True, True),
        (SPECULATORS, None, True),
        (SPECULATORS, False, False),
        (FLAT | {"eagle_config": {"norm_before_residual": True}}, None, True),
    ],
)
def test_the_residual_is_the_one_of_training(
    tmp_path: Path, config: dict, stated: bool | None, used: bool
) -> None:
    said = {} if stated is None else {"norm_before_residual": stated}
    head = load(write(tmp_path, config | said, flat_tensors()))
    assert difference(head, flat_tensors(), norm_before_residual=used) < SAME
    assert difference(head, flat_tensors(), norm_before_residual=not used) > OTHER


@pytest.mark.parametrize("option", ["norm_before_fc", "fc_norm", "norm_output"])
def test_later_norms_are_used_where_the_config_says_so(tmp_path: Path, option: str) -> None:
    tensors = flat_tensors()
    if option == "norm_before_fc":
        tensors["input_norm.weight"] = 1 + random(3 * H, seed=30)
    if option == "fc_norm":
        tensors |= {f"fc_norm.{i}.weight": 1 + random(H, seed=31 + i) for i in range(3)}
    head = load(write(tmp_path / "said", FLAT | {option: True}, tensors))
    uses: dict[str, Any] = {option: True}
    assert difference(head, tensors, **uses) < SAME
    assert difference(head, tensors) > OTHER
    if option != "norm_output":  # its norm is there in any case
        with pytest.raises(UserError, match=r"norm.* is not expected"):
            load(write(tmp_path / "unsaid", FLAT, tensors))
        with pytest.raises(UserError, match=r"norm.* is missing"):
            load(write(tmp_path / "lost", FLAT | {option: True}, flat_tensors()))


def test_older_names_of_the_feature_norms_are_read(tmp_path: Path) -> None:
    norms = [1 + random(H, seed=31 + i) for i in range(3)]
    old = {f"aux_norm_{n}.weight": w for n, w in zip(("low", "mid", "high"), norms, strict=True)}
    head = load(write(tmp_path, FLAT | {"fc_norm": True}, flat_tensors() | old))
    new = {f"fc_norm.{i}.weight": w for i, w in enumerate(norms)}
    assert difference(head, flat_tensors() | new, fc_norm=True) < SAME


# -- layers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (FLAT, (2, 16, 29)),
        (SPECULATORS | {"eagle_aux_hidden_state_layer_ids": None}, (2, 16, 29)),
        # `eagle_config` counts outputs: the input of a layer is the output of the one before.
        (FLAT | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [4, 11, 20]}}, (5, 12, 21)),
        # speculators counts inputs
        (SPECULATORS | {"eagle_aux_hidden_state_layer_ids": [4, 11, 20]}, (4, 11, 20)),
        (SPECULATORS | {"eagle_aux_hidden_state_layer_ids": [20, 4, 11]}, (4, 11, 20)),
        # EAGLE's own choice is known in either way of counting, also from a converted file.
        (FLAT | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}}, (2, 16, 29)),
        (FLAT | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}}, (2, 16, 29)),
        (SPECULATORS | {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}, (2, 16, 29)),
        (SPECULATORS | {"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}, (2, 16, 29)),
        # Beside EAGLE's choice in either count stand lists that mean what they say.
        (SPECULATORS | {"eagle_aux_hidden_state_layer_ids": [3, 17, 30]}, (3, 17, 30)),
        (FLAT | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 14, 27]}}, (1, 15, 28)),
    ],
)
def test_layers_are_counted_as_the_format_counts(
    tmp_path: Path, config: dict, layers: tuple[int, int, int]
) -> None:
    assert load(write(tmp_path, config, flat_tensors())).feature_layers(LAYERS) == layers


@pytest.mark.parametrize("listed", [[1, 2], [1, 2, 3, 4], [3, 3, 9], [-1, 2, 3], [2, 16, 32]])
def test_layers_that_the_target_lacks_are_refused(tmp_path: Path, listed: list[int]) -> None:
    config = SPECULATORS | {"eagle_aux_hidden_state_layer_ids": listed}
    head = load(write(tmp_path, config, flat_tensors()))
    with pytest.raises(UserError, match="expected 3 different layers of a target of 32"):
        head.feature_layers(LAYERS)


# -- embedding and vocabulary ----------------------------------------------------------------------


def test_a_missing_embedding_is_the_targets(tmp_path: Path) -> None:
    assert load(write(tmp_path, FLAT, flat_tensors())).embedding is EMBEDDING


def test_an_own_embedding_is_used(tmp_path: Path) -> None:
    own = random(VOCAB, H, seed=40)
    head = load(write(tmp_path, FLAT, flat_tensors() | {"embed_tokens.weight": own}))
    assert difference(head, flat_tensors(), own) < SAME
    assert difference(head, flat_tensors(), EMBEDDING) > OTHER


def test_an_own_embedding_that_is_the_targets_is_held_once(tmp_path: Path) -> None:
    copy = flat_tensors() | {"embed_tokens.weight": EMBEDDING.clone()}
    assert load(write(tmp_path, FLAT, copy)).embedding is EMBEDDING


def test_a_target_of_another_width_needs_an_own_embedding(tmp_path: Path) -> None:
    wide, config = 2 * H, FLAT | {"target_hidden_size": 2 * H}
    target_embedding = random(VOCAB, wide, seed=41)
    tensors, own = flat_tensors(wide), random(VOCAB, H, seed=42)
    with pytest.raises(UserError, match=r"embed_tokens\.weight is missing, expected \[30, 12\]"):
        load(write(tmp_path, config, tensors), target_embedding)
    head = load(write(tmp_path, config, tensors | {"embed_tokens.weight": own}), target_embedding)
    assert difference(head, tensors, own, wide) < SAME
    with pytest.raises(UserError, match="for a target of 30 tokens and width 24, got"):
        load(tmp_path, EMBEDDING)


def test_a_full_draft_vocabulary_has_no_offsets(tmp_path: Path) -> None:
    tensors = flat_tensors(draft=VOCAB)
    del tensors["d2t"], tensors["t2d"]
    head = load(write(tmp_path, FLAT | {"draft_vocab_size": VOCAB}, tensors))
    assert head.target_ids.tolist() == list(range(VOCAB))
    smaller = flat_tensors()
    del smaller["d2t"]
    with pytest.raises(UserError, match=r"d2t is missing, expected \[9\]"):
        load(write(tmp_path, FLAT, smaller))


@pytest.mark.parametrize(
    "d2t",
    [
        torch.tensor(TARGET_IDS),  # ids where offsets belong
        torch.zeros(DRAFT, dtype=torch.int64) - 1,
        -torch.arange(DRAFT),  # the same token nine times
    ],
)
def test_offsets_must_give_distinct_tokens_of_the_target(tmp_path: Path, d2t: Tensor) -> None:
    with pytest.raises(UserError, match="d2t must hold offsets"):
        load(write(tmp_path, FLAT, flat_tensors() | {"d2t": d2t}))
    with pytest.raises(UserError, match="expected offsets as integers"):
        load(write(tmp_path, FLAT, flat_tensors() | {"d2t": d2t.float()}))


# -- positions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "base"),
    [
        ({}, 10_000.0),  # the format's default: the target's base is not even known here
        ({"rope_theta": 1e6}, 1e6),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}, 50.0),
    ],
)
def test_the_base_is_the_files_own(tmp_path: Path, stated: dict, base: float) -> None:
    nested = SPECULATORS | {"transformer_layer_config": LAYER | stated}
    for name, config in (("flat", FLAT | stated), ("nested", nested)):
        head = load(write(tmp_path / name, config, flat_tensors()))
        uses: dict[str, Any] = {"norm_before_residual": name == "nested"}
        assert difference(head, flat_tensors(), base=base, **uses) < SAME
        assert difference(head, flat_tensors(), base=3.0, **uses) > 1e-3


def test_a_scaled_head_says_so_and_is_written_back(tmp_path: Path) -> None:
    scaling = Llama3Scaling(8.0, 1.0, 4.0, 16)
    config = FLAT | {"rope_scaling": scaling.to_config(), "target_hidden_size": H}
    config |= {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [4, 11, 20]}}
    config |= {"norm_output": True}
    head = load(write(tmp_path, config, flat_tensors()))
    assert head.config.rope_scaling == scaling
    assert difference(head, flat_tensors(), norm_output=True) > 1e-4
    (tmp_path / "config.json").write_text(head.config.to_json())
    assert DraftHeadConfig.from_folder(tmp_path) == head.config


def test_left_out_numbers_are_those_of_the_format(tmp_path: Path) -> None:
    config = {k: v for k, v in FLAT.items() if k not in ("head_dim", "num_key_value_heads")}
    write(tmp_path, config, {"x": torch.zeros(1)})
    read = DraftHeadConfig.from_folder(tmp_path)
    assert (read.head_dim, read.num_key_value_heads) == (H // HEADS, HEADS)


# -- what is not served, and what is not whole -----------------------------------------------------


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (FLAT | {"num_hidden_layers": 2}, "num_hidden_layers is 2"),
        (FLAT | {"num_aux_hidden_states": 4}, "num_aux_hidden_states is 4"),
        (FLAT | {"attention_bias": True}, "attention_bias"),
        (FLAT | {"layer_types": ["sliding_attention"]}, "sliding window"),
        (SPECULATORS | {"speculators_model_type": "dflash"}, "'dflash'"),
        (FLAT | {"rope_scaling": {"rope_type": "yarn"}}, "'yarn'"),
    ],
)
def test_what_would_be_drafted_wrongly_is_refused(tmp_path: Path, config: dict, said: str) -> None:
    with pytest.raises(UserError, match=f"{said}.*served yet"):
        load(write(tmp_path, config, flat_tensors()))


def test_every_difference_is_listed_at_once(tmp_path: Path) -> None:
    tensors = flat_tensors()
    del tensors["fc.weight"], tensors["norm.weight"]
    tensors["lm_head.weight"] = random(DRAFT + 1, H)
    tensors["midlayer.self_attn.q_norm.weight"] = random(DIM)
    with pytest.raises(UserError) as caught:
        load(write(tmp_path, FLAT, tensors))
    said = str(caught.value)
    assert "4 differences" in said and "\n" not in said
    for part in (
        "fc.weight is missing, expected [12, 36]",
        "norm.weight is missing, expected [12]",
        "lm_head.weight is [10, 12], expected [9, 12]",
        "midlayer.self_attn.q_norm.weight [4] is not expected",
    ):
        assert part in said
