"""From text to training batches, on disk and back, and training that goes on where it stopped."""

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
from models.distill.batches import BatchMaker, draft_vocabulary, stream, usable
from models.distill.head_module import HeadModule
from models.distill.store import Sequence, SequenceStore
from models.distill.training import initial_weights, rate_factor
from models.draft_head import DraftHead, DraftHeadConfig
from models.errors import UserError


def sequence(tokens: list[int], answer_start: int, width: int = 2) -> Sequence:
    """A stored text whose features and hidden states tell their row and are exact in bfloat16."""
    n = len(tokens) - 1
    rows = torch.arange(n, dtype=torch.float32)[:, None]
    hidden = torch.stack((torch.arange(n) % 3, torch.arange(n) % 2), dim=1).float()
    return Sequence(
        torch.tensor(tokens, dtype=torch.int32),
        answer_start,
        rows.repeat(1, 3 * width).bfloat16(),
        hidden.repeat(1, width // 2).bfloat16(),
    )


# -- batches, by hand ----------------------------------------------------------------------------

VOCAB = torch.tensor([3, 5, 7, 9])  # draft ids 0 to 3
ROWS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, -1.0]])
# Row i pairs the state at i with the token at i + 1 and predicts the token at i + 2.
FIRST = sequence([1, 2, 3, 5, 4, 7, 9], answer_start=3)  # 6 states, rows 0 to 4, roots 2 to 4
SECOND = sequence([5, 3, 5, 9, 7], answer_start=1)  # 4 states, rows 0 to 2, roots 0 to 2


def made(**kwargs: float) -> BatchMaker:
    """A maker of three steps over four draft tokens."""
    return BatchMaker(VOCAB, ROWS, 3)


def test_a_batch_by_hand() -> None:
    batch = made().make([FIRST, SECOND], 1.0, np.random.default_rng(0))
    assert batch.row_counts == [5, 3]
    assert [roots.tolist() for roots in batch.roots] == [[2, 3, 4], [0, 1, 2]]
    assert batch.next_tokens.tolist() == [2, 3, 5, 4, 7] + [3, 5, 9]
    assert batch.positions.tolist() == [0, 1, 2, 3, 4] + [0, 1, 2]
    assert batch.features[:, 0].tolist() == [0, 1, 2, 3, 4] + [0, 1, 2]
    # Steps run on along the text; behind its end they stand on its last row and are not scored.
    assert batch.step_positions.tolist() == [
        [2, 3, 4, 0, 1, 2],
        [3, 4, 4, 1, 2, 2],
        [4, 4, 4, 2, 2, 2],
    ]
    assert batch.step_tokens.tolist() == [
        [5, 4, 7, 3, 5, 9],
        [4, 7, 7, 5, 9, 9],
        [7, 7, 7, 9, 9, 9],
    ]
    # Predicted: 4 (outside the draft vocabulary), 7, 9 of the first; 5, 9, 7 of the second.
    assert batch.labels[0].tolist() == [-1, 2, 3, 1, 3, 2]
    # Rows of `target_probs` follow the roots' texts: 0 to 2 are rows 2 to 4 of the first text.
    # Root 2 learns nothing: its first step is outside, so its later steps can never be reached.
    assert batch.targets.tolist() == [
        [-1, 1, 2, 3, 4, 5],
        [-1, 2, -1, 4, 5, -1],
        [-1, -1, -1, 5, -1, -1],
    ]


def test_targets_are_what_the_target_predicts_there() -> None:
    batch = made().make([FIRST, SECOND], 1.0, np.random.default_rng(0))
    # hidden[i + 1] predicts tokens[i + 2]: rows 3 to 5 of the first text, 1 to 3 of the second.
    hidden = torch.cat((FIRST.hidden[3:6], SECOND.hidden[1:4])).float()
    wanted = (hidden @ ROWS.T).softmax(-1)
    assert torch.equal(batch.target_probs, wanted)
    assert len(batch.target_probs) == 6


def test_prompt_positions_may_be_roots_too() -> None:
    batch = made().make([FIRST], 1.0, np.random.default_rng(0), prompt_share=1.0)
    assert batch.roots[0].tolist() == [0, 1, 2, 3, 4]
    assert batch.targets[0].tolist() == [0, 1, -1, 3, 4]  # rows are counted from the first root
    assert len(batch.target_probs) == 5


def test_a_share_draws_roots_without_repeats() -> None:
    batch = made().make([FIRST, SECOND], 0.5, np.random.default_rng(3))
    for roots, first, end in zip(batch.roots, (2, 0), (5, 3), strict=True):
        assert len(roots) == len(set(roots.tolist())) == 2
        assert all(first <= root < end for root in roots.tolist())
        assert roots.tolist() == sorted(roots.tolist())


def test_losses_and_hits_by_hand() -> None:
    width = 32
    decoder = tiny_decoder(0, 12, "float32")
    config = DraftHeadConfig.for_target(decoder.config, 12)
    weights = {n: torch.zeros_like(w) for n, w in tiny_weights(decoder.config).items()}
    module = HeadModule(config, weights, decoder.embedding)
    maker = BatchMaker(torch.arange(12), decoder.head_weight(), 2)
    batch = maker.make([sequence([1, 0, 3, 0, 4], 1, width)], 1.0, np.random.default_rng(0))
    losses, hits, counts = module.losses(batch)
    # A head of zeros gives every token the same chance, and ranks token 0 first.
    assert counts.tolist() == [3, 2]
    assert hits.tolist() == [1, 1]  # labels are 3, 0, 4 and then 0, 4
    assert losses.tolist() == pytest.approx([3 * np.log(12), 2 * np.log(12)], rel=1e-5)


def test_training_learns_a_text_by_heart() -> None:
    torch.manual_seed(0)
    decoder = tiny_decoder(0, 12, "float32")
    config = DraftHeadConfig.for_target(decoder.config, 12)
    module = HeadModule(config, tiny_weights(decoder.config), decoder.embedding)
    maker = BatchMaker(torch.arange(12), decoder.head_weight(), 2)
    rng = np.random.default_rng(0)
    batch = maker.make([random_sequence(rng, 12)], 1.0, rng)
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    history = []
    for _ in range(25):
        losses, _, counts = module.losses(batch)
        loss = (losses / counts).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(float(loss))
    assert history[-1] < 0.7 * history[0]


# -- the store -----------------------------------------------------------------------------------


def test_shards_are_read_as_written(tmp_path: Path) -> None:
    store = SequenceStore(tmp_path / "data")
    store.add([FIRST, SECOND], seed=0)
    store.add([SECOND], seed=1)
    store.add([SECOND, FIRST], seed=0)
    names = [path.name for path in store.shards()]
    assert names == [f"shard-{n}.safetensors" for n in ("00000-000", "00000-001", "00001-000")]
    assert not list((tmp_path / "data").glob("*.partial"))
    for got, wanted in zip(SequenceStore.read(store.shards()[2]), [SECOND, FIRST], strict=True):
        assert got.answer_start == wanted.answer_start
        for a, b in ((got.tokens, wanted.tokens), (got.features, wanted.features)):
            assert torch.equal(a, b) and a.dtype == b.dtype
        assert torch.equal(got.hidden, wanted.hidden)


def test_short_answers_are_not_used() -> None:
    assert usable(sequence([1, 2, 3, 4, 5], answer_start=2))
    assert not usable(sequence([1, 2, 3, 4, 5], answer_start=3))


def test_the_vocabulary_is_what_answers_use(tmp_path: Path) -> None:
    store = SequenceStore(tmp_path)
    store.add([sequence([4, 4, 4, 4, 8, 8, 2, 6], answer_start=4)], 0)
    # Answers: 8 twice, 2 and 6 once. The prompt's four 4s count 0.4.
    assert draft_vocabulary(store, 3, 10).tolist() == [2, 6, 8]
    assert draft_vocabulary(store, 4, 10).tolist() == [2, 4, 6, 8]


def test_held_out_shards_are_not_streamed(tmp_path: Path) -> None:
    store = SequenceStore(tmp_path)
    for token in (1, 2, 3):
        store.add([sequence([token] * 9, answer_start=2)] * 4, 0)
    groups = stream(store, 1, 20, np.random.default_rng(0))
    seen = [int(s.tokens[0]) for _, group in zip(range(6), groups, strict=False) for s in group]
    assert set(seen) == {2, 3}
    assert all(seen.count(token) >= 8 for token in (2, 3)), "every shard comes round again"


# -- the training command ------------------------------------------------------------------------


def tiny_weights(config: object) -> dict[str, Tensor]:
    """A head that starts from `tiny_decoder`, as training starts."""
    decoder = tiny_decoder(0, 12, "float32")
    return initial_weights(target_tensors(), decoder.config, torch.arange(12))


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
