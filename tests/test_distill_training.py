"""Training of a draft head in miniature: its loss, what it learns, how it goes on after a stop."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.tiny import tiny_decoder
from models.distill import training
from models.distill.__main__ import TrainConfig
from models.distill.batches import BatchMaker
from models.distill.head_module import HeadModule
from models.distill.store import Sequence, SequenceStore
from models.distill.training import initial_weights, rate_factor
from models.draft_head import DraftHead, DraftHeadConfig
from models.errors import UserError

DECODER = tiny_decoder(0, 12, "float32")
HEAD = DraftHeadConfig.for_target(DECODER.config, 12)
MAKER = BatchMaker(torch.arange(12), DECODER.head_weight(), unroll=2)


def target_tensors() -> dict[str, Tensor]:
    """Random tensors by the names of a Llama of the tiny decoder's shape."""
    generator = torch.Generator().manual_seed(0)
    last = "model.layers.7"
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (12, 32),
        "lm_head": (12, 32),
        f"{last}.self_attn.q_proj": (32, 32),
        f"{last}.self_attn.k_proj": (16, 32),
        f"{last}.self_attn.v_proj": (16, 32),
        f"{last}.self_attn.o_proj": (32, 32),
        f"{last}.mlp.gate_proj": (64, 32),
        f"{last}.mlp.up_proj": (64, 32),
        f"{last}.mlp.down_proj": (32, 64),
    }
    tensors = {
        f"{name}.weight": 0.2 * torch.randn(*shape, generator=generator)
        for name, shape in shapes.items()
    }
    for name in ("model.norm", f"{last}.input_layernorm", f"{last}.post_attention_layernorm"):
        tensors[f"{name}.weight"] = torch.ones(32)
    return tensors


def random_sequence(rng: np.random.Generator, tokens: int) -> Sequence:
    """A text of 20 to 30 tokens with random features."""
    n = int(rng.integers(20, 31))
    return Sequence(
        torch.from_numpy(rng.integers(0, tokens, n + 1).astype(np.int32)),
        5,
        torch.from_numpy(rng.normal(size=(n, 96)).astype(np.float32)).bfloat16(),
        torch.from_numpy(rng.normal(size=(n, 32)).astype(np.float32)).bfloat16(),
    )


def first_weights() -> dict[str, Tensor]:
    """A head as training starts it."""
    return initial_weights(target_tensors(), DECODER.config, torch.arange(12))


def test_losses_and_hits_by_hand() -> None:
    weights = {name: torch.zeros_like(weight) for name, weight in first_weights().items()}
    module = HeadModule(HEAD, weights, DECODER.embedding)
    text = random_sequence(np.random.default_rng(0), 12)
    tokens = torch.tensor([1, 0, 3, 0, 4], dtype=torch.int32)
    short = Sequence(tokens, 1, text.features[:4], text.hidden[:4])
    batch = MAKER.make([short], 1.0, np.random.default_rng(0))
    losses, hits, counts = module.losses(batch)
    # A head of zeros gives every token the same chance, and ranks token 0 first.
    assert counts.tolist() == [3, 2]
    assert hits.tolist() == [1, 1]  # labels are 3, 0, 4 and then 0, 4
    assert losses.tolist() == pytest.approx([3 * np.log(12), 2 * np.log(12)], rel=1e-5)


def test_training_learns_a_text_by_heart() -> None:
    torch.manual_seed(0)
    module = HeadModule(HEAD, first_weights(), DECODER.embedding)
    rng = np.random.default_rng(0)
    batch = MAKER.make([random_sequence(rng, 12)], 1.0, rng)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    history = []
    for _ in range(10):
        losses, _, counts = module.losses(batch)
        loss = (losses / counts).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(float(loss.detach()))
    assert history[-1] < 0.7 * history[0]


class CountedTime:
    """A clock that a training loop reads once a step, and that moves a second each time."""

    def __init__(self) -> None:
        self.now_s = -1.0

    def monotonic(self) -> float:
        """The next second."""
        self.now_s += 1.0
        return self.now_s


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrainConfig]:
    """A tiny target folder and two shards; a minute is sixty reads of the clock."""
    target = tmp_path / "target"
    target.mkdir()
    config = {
        "model_type": "llama",
        "vocab_size": 12,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128,
    }
    (target / "config.json").write_text(json.dumps(config))
    save_file(target_tensors(), target / "model.safetensors")
    store = SequenceStore(tmp_path / "data")
    rng = np.random.default_rng(0)
    for _ in range(2):
        store.add([random_sequence(rng, 12) for _ in range(4)], 0)
    monkeypatch.setattr(training, "time", CountedTime())
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    threads = torch.get_num_threads()
    yield TrainConfig(
        data=tmp_path / "data",
        out=tmp_path / "run",
        target=str(target),
        minutes=0.1,
        draft_vocab=10,
        unroll=2,
        batch_tokens=40,
        save_every=2,
        threads=1,
    )
    torch.set_num_threads(threads)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_training_goes_on_where_it_stopped(command: TrainConfig) -> None:
    training.train(command)
    checkpoint = command.out / "checkpoint.pt"
    first = torch.load(checkpoint, weights_only=True)
    assert first["step"] == 5  # six seconds less the one that began it
    # A call without time does no step: what is on disk is what training goes on from.
    training.train(replace(command, minutes=0.0))
    again = torch.load(checkpoint, weights_only=True)
    assert (again["step"], again["tokens_seen"]) == (first["step"], first["tokens_seen"])
    assert all(torch.equal(again["weights"][n], w) for n, w in first["weights"].items())
    for state, wanted in zip(
        again["optimizer"]["state"].values(), first["optimizer"]["state"].values(), strict=True
    ):
        assert torch.equal(state["exp_avg"], wanted["exp_avg"]) and state["step"] == wanted["step"]
    # With time, it moves on from there.
    training.train(command)
    last = torch.load(checkpoint, weights_only=True)
    assert last["step"] == 10
    assert last["tokens_seen"] > first["tokens_seen"]
    assert torch.equal(last["vocab"], first["vocab"])
    moved = {n for n, w in first["weights"].items() if not torch.equal(last["weights"][n], w)}
    assert "fc.weight" in moved and "midlayer.self_attn.q_proj.weight" in moved
    assert "lm_head.weight" not in moved, "the output rows are the target's"
    assert list(command.out.glob("events.*"))


def test_training_leaves_a_head_that_serves(command: TrainConfig) -> None:
    training.train(command)
    embedding = load_file(Path(command.target) / "model.safetensors")["model.embed_tokens.weight"]
    head = DraftHead.from_folder(command.out / "head", embedding, torch.float32)
    saved = torch.load(command.out / "checkpoint.pt", weights_only=True)
    assert head.target_ids.tolist() == saved["vocab"].tolist()
    figures = json.loads((command.out / "head" / "training.json").read_text())
    assert figures["steps"] == 5
    assert len(figures["held_out_accuracy_by_draft_step"]) == 2


def test_training_needs_a_shard_beyond_the_held_out(command: TrainConfig) -> None:
    with pytest.raises(UserError, match="holds 2 shards, expected more than 2"):
        training.train(replace(command, held_out_shards=2))
    assert not command.out.exists()


def test_the_learning_rate_rises_holds_and_falls() -> None:
    assert rate_factor(0.0, 100.0, 0.3, step=2) == pytest.approx(0.1)
    assert rate_factor(50.0, 100.0, 0.3, step=99) == 1.0
    assert rate_factor(85.0, 100.0, 0.3, step=99) == pytest.approx(0.5)
    assert rate_factor(101.0, 100.0, 0.3, step=99) == 0.0
    assert rate_factor(99.0, 100.0, 0.0, step=99) == 1.0
