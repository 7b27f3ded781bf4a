"""A drafter is chosen by name, and one that does not fit its target is refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.drafters.build import network_folder
from engine.drafters.model import ModelDrafter
from engine.drafters.prompt_lookup import PromptLookup
from engine.errors import UserError
from engine.protocol import Limits
from engine.serving import LiveConfig, LiveServer
from engine.tiny import tiny_decoder, tiny_server

VOCAB, WIDTH, POSITIONS = 12, 8, 96


def write_model(folder: Path, words: str, layers: int, vocab: int = VOCAB) -> Path:
    """A random model in Hugging Face format whose tokens are the letters of `words`."""
    folder.mkdir()
    config = {
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": WIDTH,
        "intermediate_size": WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": POSITIONS,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(layers)
    shapes = {"model.embed_tokens": (vocab, WIDTH), "model.norm": (WIDTH,)}
    for i in range(layers):
        square = [f"self_attn.{n}_proj" for n in "qkvo"] + [
            f"mlp.{n}_proj" for n in ("gate", "up", "down")
        ]
        shapes |= {f"model.layers.{i}.{name}": (WIDTH, WIDTH) for name in square}
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{i}.{name}"] = (WIDTH,)
    save_file(
        {f"{n}.weight": torch.randn(*shape, generator=generator) for n, shape in shapes.items()},
        folder / "model.safetensors",
    )
    vocabulary = {letter: i for i, letter in enumerate(words)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": words[0]}
    (folder / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "model": model, "added_tokens": []})
    )
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": words[1]}))
    return folder


def load(model: Path, drafter: str, draft_model: Path | None = None) -> LiveServer:
    """A small server of the folder."""
    draft = None if draft_model is None else str(draft_model)
    return LiveServer.load(
        LiveConfig(str(model), dtype="float32", slots=2, drafter=drafter, draft_model=draft)
    )


def test_a_model_folder_drafts_for_another(tmp_path: Path) -> None:
    target = write_model(tmp_path / "target", "abcdefghijkl", 2)
    draft = write_model(tmp_path / "draft", "abcdefghijkl", 1)
    server = load(target, "model", draft)
    assert isinstance(server.drafter, ModelDrafter)
    assert server.settings.capacity_tokens == POSITIONS
    assert "drafter model" in server.describe()
    assert server.guard.failures == 0
    other = write_model(tmp_path / "other", "lkjihgfedcba", 1)
    with pytest.raises(UserError, match="tokenizer has other tokens than the target's"):
        load(target, "model", other)
    padded = write_model(tmp_path / "padded", "abcdefghijkl", 1, VOCAB + 4)
    with pytest.raises(UserError, match="has 16 tokens, the target 12"):
        load(target, "model", padded)
    (draft / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"no readable tokenizer\.json"):
        load(target, "model", draft)


def test_prompt_lookup_needs_no_network(tmp_path: Path) -> None:
    server = load(write_model(tmp_path / "target", "abcdefghijkl", 2), "prompt-lookup")
    assert isinstance(server.drafter, PromptLookup)
    assert server.head is None
    assert "drafter prompt-lookup" in server.describe()


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (("eagle", "m", None, None), "known are eagle3, model, prompt-lookup"),
        (("model", "m", None, None), "needs a draft model"),
        (("model", "m", Path("head"), "m"), "a draft head was given"),
        (("prompt-lookup", "m", None, "m"), "a draft model was given"),
        (("eagle3", "m", None, None), "no draft head is known for m"),
        (("model", "m", None, "no-such-model"), "'no-such-model' is not known"),
    ],
)
def test_wrong_choices_are_refused(
    choice: tuple[str, str, Path | None, str | None], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        network_folder(*choice)


def test_the_tiny_server_knows_the_same_names() -> None:
    with pytest.raises(UserError, match="known are eagle3, model, prompt-lookup"):
        tiny_server(drafter="medusa")


def test_a_draft_model_needs_as_many_positions_as_rows() -> None:
    decoder = tiny_decoder()
    with pytest.raises(UserError, match="has 2048 positions, fewer than the 2049 rows"):
        ModelDrafter(decoder, decoder, Limits(slots=1), 2049)
    with pytest.raises(UserError, match="has 64 tokens, the target 65"):
        ModelDrafter(decoder, tiny_decoder(vocab=65), Limits(slots=1), 64)
