"""The public pairs of the registry have the shapes that their config.json states; none is loaded.

Configurations are those of the public files; tensors live on torch's meta device, which holds
shapes alone. What a target's checkpoint must hold is what transformers would save.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from models import head_source, registry
from models.decoder import Decoder
from models.decoder_config import DecoderConfig
from models.draft_head import DraftHead
from models.errors import UserError
from models.head_config import DraftHeadConfig

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
}
QWEN3_8B: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "hidden_act": "silu",
    "attention_bias": False,
    "sliding_window": None,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
}
LLAMA_HEAD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 2048,
    "hidden_act": "silu",
}
QWEN3_HEAD: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "draft_vocab_size": 32000,
    "norm_before_residual": True,
    "target_hidden_size": None,
    "eagle_aux_hidden_state_layer_ids": None,
    "transformer_layer_config": LLAMA_HEAD
    | {
        "vocab_size": 151936,
        "intermediate_size": 12288,
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000,
    },
}
# target, head, layers whose inputs are captured, millions of parameters of the head without
# embedding (research/engines.md sections 2.3 and 2.4)
PAIRS: dict[str, tuple[dict, dict, tuple[int, int, int], int]] = {
    "llama-3.1-8b-instruct": (LLAMA_8B, LLAMA_HEAD, (2, 16, 29), 425),
    "deepseek-r1-distill-llama-8b": (LLAMA_8B, LLAMA_HEAD, (2, 16, 29), 425),
    "qwen3-8b": (QWEN3_8B, QWEN3_HEAD, (2, 18, 33), 400),
}


def test_the_pairs_are_the_registrys() -> None:
    assert set(registry.hub_models()) == set(PAIRS)
    for model in registry.hub_models().values():
        assert model.hub.count("/") == model.draft_head_hub.count("/") == 1
        assert model.licence


def config_folder(folder: Path, raw: dict[str, Any]) -> Path:
    """A folder with this config.json."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


@pytest.mark.parametrize("name", PAIRS)
def test_a_pairs_shapes_fit(tmp_path: Path, name: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    target_raw, head_raw, layers, millions = PAIRS[name]
    config = DecoderConfig.from_folder(config_folder(tmp_path / "target", target_raw))
    head_config = DraftHeadConfig.from_folder(config_folder(tmp_path / "head", head_raw))
    with torch.device("meta"):
        theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**target_raw))
        shapes = {n: tuple(tensor.shape) for n, tensor in theirs.state_dict().items()}
        assert config.tensor_shapes() == shapes
        weights = {n: torch.empty(shape) for n, shape in shapes.items()}
        decoder = Decoder(config, weights, torch.bfloat16)
        head_shapes = head_config.tensor_shapes()
        weights = {n: torch.empty(shape) for n, shape in head_shapes.items()}
        weights["d2t"] = torch.zeros(32000, dtype=torch.int64)
        head = DraftHead(head_config, weights, decoder.embedding, torch.bfloat16)
        assert decoder.logits(torch.empty(5, 4096)).shape == (5, config.vocab_size)
        states = head.combine(torch.empty(5, 3 * 4096, dtype=torch.bfloat16))
        assert head.logits(states).shape == (5, 32000)
    assert head_config.vocab_size == config.vocab_size
    assert head.feature_layers(config.layers) == layers
    own = sum(torch.Size(shape).numel() for n, shape in head_shapes.items() if n != "d2t")
    assert round(own / 1e6) == millions
    assert head_config.rope_theta == (1e6 if name == "qwen3-8b" else 1e4)


class Hub:
    """Stands in for the hub: which files of a repository it gives."""

    def __init__(self, folder: Path, files: dict[str, str], pickled: bool) -> None:
        self.folder, self.files, self.pickled = folder, files, pickled
        self.asked: list[str] = []

    def snapshot_download(self, hub_id: str, allow_patterns: list[str]) -> str:
        self.asked.append(hub_id)
        self.folder.mkdir(exist_ok=True)
        for name, text in self.files.items():
            (self.folder / name).write_text(text)
        return str(self.folder)

    def hf_hub_download(self, hub_id: str, filename: str, revision: str) -> str:
        from huggingface_hub.errors import LocalEntryNotFoundError

        self.asked.append(f"{hub_id}/{filename}")
        if not self.pickled:
            raise LocalEntryNotFoundError("no connection")
        assert revision == self.folder.name
        (self.folder / filename).touch()
        return str(self.folder / filename)


def install(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let downloads go to `hub`."""
    package = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(package, "snapshot_download", hub.snapshot_download)
    monkeypatch.setattr(package, "hf_hub_download", hub.hf_hub_download)


def test_a_name_leads_to_the_target_and_to_its_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"config.json": json.dumps(LLAMA_8B), "model.safetensors": ""}
    hub = Hub(tmp_path / "commit", files, pickled=False)
    install(hub, monkeypatch)
    assert registry.resolve("llama-3.1-8b-instruct") == hub.folder
    for name in ("llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"):
        assert registry.draft_head_for(name) == hub.folder
    head = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
    assert hub.asked == ["meta-llama/Llama-3.1-8B-Instruct", head, head]
    with pytest.raises(UserError, match="only be given for a packaged model"):
        registry.resolve("llama-3.1-8b-instruct", wheel=tmp_path / "some.whl")


def test_a_pickled_head_is_fetched_only_where_there_is_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(tmp_path / "commit", {"config.json": "{}"}, pickled=True)
    install(hub, monkeypatch)
    assert head_source.hub_head("org/head") == hub.folder
    assert hub.asked == ["org/head", "org/head/pytorch_model.bin"]
    assert head_source.hub_head("org/head") == hub.folder  # it is there by now
    assert len(hub.asked) == 3
    install(Hub(tmp_path / "other", {"config.json": "{}"}, pickled=False), monkeypatch)
    with pytest.raises(UserError, match="could not be reached for pytorch_model"):
        head_source.hub_head("org/head")
