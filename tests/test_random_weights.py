"""Random networks of known shapes: the shapes are the public ones, numbers stay finite."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from engine.protocol import Limits
from engine.request import Request
from engine.serving import LiveServer
from models.decoder_config import DecoderConfig
from models.draft_head import DraftHead
from models.errors import UserError
from models.head_config import DraftHeadConfig
from models.random_weights import pair_of, random_decoder, random_head, random_tensors
from models.registry import draft_head_for
from policies.registry import make
from tests.device_twin import CARD, device_twin
from tests.test_model_pairs import LLAMA_8B, LLAMA_HEAD

TINY = DecoderConfig(
    vocab_size=40,
    hidden_size=24,
    intermediate_size=48,
    layers=7,
    heads=4,
    kv_heads=2,
    head_dim=8,
    norm_eps=1e-5,
    rope_base=10_000.0,
    context=256,
    tied=False,
)


def folder(path: Path, config: dict) -> Path:
    """A folder with a `config.json`."""
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_the_8b_shapes_are_the_public_ones(tmp_path: Path) -> None:
    target, head = pair_of("llama-3.1-8b-instruct")
    assert target == DecoderConfig.from_folder(folder(tmp_path, LLAMA_8B))
    public = DraftHeadConfig.from_folder(folder(tmp_path, LLAMA_HEAD))
    assert head.tensor_shapes() == public.tensor_shapes()
    assert head.feature_layers(32) == public.feature_layers(32)


def test_the_small_shapes_are_the_shipped_ones() -> None:
    target, head = pair_of("smollm2-135m-instruct")
    shipped = draft_head_for("smollm2-135m-instruct")
    assert shipped is not None and head == DraftHeadConfig.from_folder(shipped)
    assert (target.hidden_size, target.layers) == (576, 30)
    with pytest.raises(UserError, match=r"qwen9.* known are smollm2-135m-instruct, llama"):
        pair_of("qwen9")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_a_random_pair_serves(dtype: torch.dtype, tied: bool) -> None:
    config = DecoderConfig(**{**vars(TINY), "tied": tied})
    decoder = random_decoder(config, dtype, seed=3)
    head = random_head(DraftHeadConfig.for_target(config, 16), decoder, dtype)
    assert isinstance(head, DraftHead) and head.target_ids is not None
    limits = Limits(slots=2, max_depth=3, max_width=2, max_nodes=4)
    server = LiveServer(decoder, head, None, limits, 128, "random")
    requests = [Request(i, 0, [1, 2, 3 + i], 12, 0.0) for i in range(3)]
    engine = server.engine(requests)
    records = engine.serve(make("eagle3(3, 2, 4)"))
    assert {str(record.status) for record in records} == {"finished"}
    assert engine.counters["drafted"] > 0 and server.guard.failures == 0


def test_a_seed_gives_the_same_network() -> None:
    def embedding(seed: int) -> torch.Tensor:
        return random_decoder(TINY, torch.float32, seed=seed).embedding

    assert embedding(1).equal(embedding(1))
    assert not embedding(1).equal(embedding(2))


def test_drawn_elsewhere_the_numbers_are_the_same_but_for_rounding() -> None:
    cpu = torch.device("cpu")
    exact = random_decoder(TINY, torch.float32, seed=1, drawn_on=cpu).embedding
    rounded = random_decoder(TINY, torch.bfloat16, seed=1, drawn_on=cpu).embedding
    assert rounded.equal(exact.bfloat16())


def test_a_head_that_is_drawn_on_a_card_has_its_vocabulary_there() -> None:
    """Smaller than the target's, so that there are offsets, on the card as all else."""
    on_host = torch.Generator
    with device_twin(), patch.object(torch, "Generator", lambda device: on_host()):
        decoder = random_decoder(TINY, torch.float32, CARD)
        head = random_head(DraftHeadConfig.for_target(TINY, 16), decoder, torch.float32)
        assert head.target_ids.device == CARD
        assert head.target_ids.cpu().tolist() == list(range(16))


def test_every_tensor_has_its_shape_and_format() -> None:
    shapes = {**TINY.tensor_shapes(), "d2t": (5,), "q_proj.bias": (3,)}
    made = random_tensors(shapes, torch.bfloat16, torch.device("cpu"), 0)
    assert {name: tuple(tensor.shape) for name, tensor in made.items()} == shapes
    assert {str(made.pop("d2t").dtype)} == {"torch.int64"}
    assert {tensor.dtype for tensor in made.values()} == {torch.bfloat16}
    assert not made["q_proj.bias"].any() and (made["model.norm.weight"] == 1).all()
