"""From text to training batches, and shards on disk: both by hand-made examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from models.distill.batches import BatchMaker, draft_vocabulary, stream, usable
from models.distill.store import Sequence, SequenceStore


def sequence(tokens: list[int], answer_start: int) -> Sequence:
    """A stored text whose features and hidden states tell their row and are exact in bfloat16."""
    n = len(tokens) - 1
    rows = torch.arange(n, dtype=torch.float32)[:, None]
    hidden = torch.stack((torch.arange(n) % 3, torch.arange(n) % 2), dim=1).float()
    return Sequence(
        torch.tensor(tokens, dtype=torch.int32),
        answer_start,
        rows.repeat(1, 6).bfloat16(),
        hidden.bfloat16(),
    )


# -- batches, by hand ----------------------------------------------------------------------------

VOCAB = torch.tensor([3, 5, 7, 9])  # draft ids 0 to 3
ROWS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, -1.0]])
# Row i pairs the state at i with the token at i + 1 and predicts the token at i + 2.
FIRST = sequence([1, 2, 3, 5, 4, 7, 9], answer_start=3)  # 6 states, rows 0 to 4, roots 2 to 4
SECOND = sequence([5, 3, 5, 9, 7], answer_start=1)  # 4 states, rows 0 to 2, roots 0 to 2


MAKER = BatchMaker(VOCAB, ROWS, unroll=3)


def test_a_batch_by_hand() -> None:
    batch = MAKER.make([FIRST, SECOND], 1.0, np.random.default_rng(0))
    assert batch.row_counts == [5, 3]
    assert [roots.tolist() for roots in batch.roots] == [[2, 3, 4], [0, 1, 2]]
    assert batch.next_tokens.tolist() == [2, 3, 5, 4, 7, 3, 5, 9]
    assert batch.positions.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert batch.features[:, 0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
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
    batch = MAKER.make([FIRST, SECOND], 1.0, np.random.default_rng(0))
    # hidden[i + 1] predicts tokens[i + 2]: rows 3 to 5 of the first text, 1 to 3 of the second.
    hidden = torch.cat((FIRST.hidden[3:6], SECOND.hidden[1:4])).float()
    wanted = (hidden @ ROWS.T).softmax(-1)
    assert torch.equal(batch.target_probs, wanted)
    assert len(batch.target_probs) == 6


def test_prompt_positions_may_be_roots_too() -> None:
    batch = MAKER.make([FIRST], 1.0, np.random.default_rng(0), prompt_share=1.0)
    assert batch.roots[0].tolist() == [0, 1, 2, 3, 4]
    assert batch.targets[0].tolist() == [0, 1, -1, 3, 4]  # rows are counted from the first root
    assert len(batch.target_probs) == 5


def test_a_share_draws_roots_without_repeats() -> None:
    batch = MAKER.make([FIRST, SECOND], 0.5, np.random.default_rng(3))
    for roots, first, end in zip(batch.roots, (2, 0), (5, 3), strict=True):
        assert len(roots) == len(set(roots.tolist())) == 2
        assert all(first <= root < end for root in roots.tolist())
        assert roots.tolist() == sorted(roots.tolist())


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
