"""A target's config.json is read in the words of two transformers versions, and never guessed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models.decoder_config import DecoderConfig
from models.errors import UserError
from tests.test_decoder import LLAMA_3_SCALING


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "gpt2"),
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("rope_parameters", {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0}),
        ("rope_scaling", {"type": "linear", "factor": 2.0}),
        ("use_sliding_window", True),
        ("quantization_config", {"quant_method": "fp8"}),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(
    tmp_path: Path, smollm2_config: dict, key: str, value: object
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(smollm2_config | {key: value}))
    with pytest.raises(UserError, match="served yet"):
        DecoderConfig.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vocab_size": None, "hidden_size": None}, "lacks vocab_size, hidden_size"),
        ({"model_type": "qwen3"}, "lacks num_key_value_heads, head_dim"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "lacks low_freq_factor, high"),
    ],
)
def test_what_a_config_does_not_say_is_not_guessed(
    tmp_path: Path, smollm2_config: dict, change: dict, said: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(smollm2_config | change))
    with pytest.raises(UserError, match=said):
        DecoderConfig.from_folder(tmp_path)


def test_a_config_of_transformers_4_reads_alike(tmp_path: Path, smollm2_config: dict) -> None:
    scaling = {name: value for name, value in LLAMA_3_SCALING.items() if name != "rope_theta"}
    old = {"rope_theta": 10_000.0, "rope_scaling": scaling}
    configs = []
    for rope in ({"rope_parameters": LLAMA_3_SCALING}, old):
        (tmp_path / "config.json").write_text(json.dumps(smollm2_config | rope))
        configs.append(DecoderConfig.from_folder(tmp_path))
    assert configs[0] == configs[1]
    assert configs[0].rope_scaling is not None and configs[0].rope_scaling.factor == 8


@pytest.fixture
def smollm2_config() -> dict:
    """A `config.json` that is served."""
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    numbers = dict.fromkeys((*names, "num_attention_heads", "max_position_embeddings"), 8)
    return {"model_type": "llama", "rms_norm_eps": 1e-5, **numbers}
