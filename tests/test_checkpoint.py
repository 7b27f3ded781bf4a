"""A checkpoint is read whole or not at all, and all that is wrong with it is said at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.decoder import Decoder
from models.errors import UserError
from tests.device_twin import CARD, device_twin
from tests.test_decoder import SHAPES, draw, logits_of, saved_model

INDEX = "model.safetensors.index.json"


def test_shards_are_the_model(tmp_path: Path) -> None:
    saved_model(tmp_path / "one", torch.float64, SHAPES["qwen3"])
    saved_model(tmp_path / "many", torch.float64, SHAPES["qwen3"], shard="20KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    # The same weights once more in another layout, as some hubs' folders hold them.
    (tmp_path / "many" / "consolidated.safetensors").write_bytes(b"not read")
    one, many = (Decoder.from_folder(tmp_path / name, torch.float64) for name in ("one", "many"))
    assert (logits_of(one, draw(9)) - logits_of(many, draw(9))).abs().max() < 1e-10


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float32, SHAPES["grouped"], shard="20KB")
    lost = sorted(tmp_path.glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(UserError, match=f"lacks {lost.name}, which"):
        Decoder.from_folder(tmp_path, torch.float32)
    for text in ("{", "{}", '{"weight_map": 3}'):
        (tmp_path / INDEX).write_text(text)
        with pytest.raises(UserError, match=r"index\.json is damaged"):
            Decoder.from_folder(tmp_path, torch.float32)


def test_damaged_and_absent_weights_are_refused(tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float32, SHAPES["grouped"])
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])
    with pytest.raises(UserError, match="damaged or cut short"):
        Decoder.from_folder(tmp_path, torch.float32)
    weights.unlink()
    with pytest.raises(UserError, match="holds no safetensors weights"):
        Decoder.from_folder(tmp_path, torch.float32)


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Save a folder's tensors anew after `change`."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_every_difference_is_listed_at_once(tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float32, SHAPES["qwen2.5"])
    first, third = "model.layers.0.self_attn", "model.layers.3.mlp"

    def spoil(tensors: dict[str, Tensor]) -> None:
        del tensors[f"{first}.k_proj.bias"], tensors["model.norm.weight"]
        tensors[f"{third}.down_proj.weight"] = torch.zeros(24, 41)
        tensors[f"{first}.q_norm.weight"] = torch.zeros(6)

    rewrite(tmp_path, spoil)
    with pytest.raises(UserError) as caught:
        Decoder.from_folder(tmp_path, torch.float32)
    said = str(caught.value)
    assert "4 differences" in said and "\n" not in said
    for part in (
        f"{first}.k_proj.bias is missing, expected [12]",
        "model.norm.weight is missing, expected [24]",
        f"{third}.down_proj.weight is [24, 41], expected [24, 40]",
        f"{first}.q_norm.weight [6] is not expected",
    ):
        assert part in said


def test_what_follows_from_the_rest_may_be_there(tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float64, SHAPES["grouped"])
    plain = logits_of(Decoder.from_folder(tmp_path, torch.float64), draw(9))

    def add(tensors: dict[str, Tensor]) -> None:
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(3)
        tensors["lm_head.weight"] = torch.zeros(50, 24)  # tied: transformers does not use it

    rewrite(tmp_path, add)
    again = logits_of(Decoder.from_folder(tmp_path, torch.float64), draw(9))
    assert (plain - again).abs().max() < 1e-10


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model"):
        Decoder.from_folder(tmp_path, torch.float32)
    (tmp_path / "config.json").write_text(json.dumps([1]))
    with pytest.raises(UserError, match="holds a list"):
        Decoder.from_folder(tmp_path, torch.float32)


def test_a_checkpoint_is_loaded_to_a_card(tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float64, SHAPES["qwen2.5"])
    wanted = logits_of(Decoder.from_folder(tmp_path, torch.float64), draw(9))
    with device_twin():
        decoder = Decoder.from_folder(tmp_path, torch.float64, CARD)
        assert decoder.device == decoder.layers[0].input_norm.device == decoder.cos.device == CARD
        got = logits_of(decoder, draw(9)).cpu()
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)
