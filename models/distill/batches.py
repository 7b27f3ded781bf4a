"""From shards to training batches: which positions are roots and what each step should predict."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.distill.head_module import TrainBatch
from models.distill.store import Sequence, SequenceStore

Indices = NDArray[np.int64]


class BatchMaker:
    """Turns sequences into `TrainBatch`es for one draft vocabulary."""

    def __init__(self, vocab: Tensor, head_rows: Tensor, unroll: int) -> None:
        self.unroll = unroll
        self.head_rows = head_rows  # [draft_vocab, h] the target's output rows of the vocabulary
        self.to_draft = torch.full((int(vocab.max()) + 1,), -1)
        self.to_draft[vocab] = torch.arange(len(vocab))

    def draft_ids(self, tokens: Tensor) -> Tensor:
        """Draft id of each target id, -1 outside the draft vocabulary."""
        inside = tokens < len(self.to_draft)
        return torch.where(inside, self.to_draft[tokens.clamp(max=len(self.to_draft) - 1)], -1)

    def make(
        self,
        sequences: list[Sequence],
        share: float,
        generator: np.random.Generator,
        prompt_share: float = 0.0,
    ) -> TrainBatch:
        """A batch whose roots are a random `share` of the answers' positions.

        `prompt_share` adds positions of the prompts: text that the target has seen too, and that
        costs nothing more to make.
        """
        row_counts, roots, features, next_tokens, positions = [], [], [], [], []
        step_tokens, step_positions, targets, hidden, labels = [], [], [], [], []
        offset = 0
        for sequence in sequences:
            tokens = sequence.tokens.long()
            n = len(sequence.features) - 1  # rows that have a prediction to learn from
            # The first draft starts from the first answer token and predicts the second.
            start = max(sequence.answer_start - 1, 0)
            chosen = start + _choose(n - start, share, generator)
            if prompt_share > 0:
                chosen = np.concatenate((_choose(start, prompt_share, generator), chosen))
            root = torch.from_numpy(chosen)
            steps = root[None] + torch.arange(self.unroll)[:, None]
            inside = steps < n
            clamped = steps.clamp(max=n - 1)
            label = self.draft_ids(tokens[clamped + 2])
            # Once a token is outside the vocabulary no later step can be reached.
            learnable = (inside & (label >= 0)).int().cumprod(0).bool()
            first = int(chosen[0])
            row_counts.append(n)
            roots.append(root)
            features.append(sequence.features[:n])
            next_tokens.append(tokens[1 : n + 1])
            positions.append(torch.arange(n))
            step_tokens.append(tokens[clamped + 1])
            step_positions.append(clamped)
            labels.append(label)
            targets.append(torch.where(learnable, clamped - first + offset, -1))
            hidden.append(
                sequence.hidden[first + 1 : n + 1]
            )  # hidden[i + 1] predicts tokens[i + 2]
            offset += n - first
        logits = torch.cat(hidden).float() @ self.head_rows.T
        return TrainBatch(
            features=torch.cat(features).float(),
            next_tokens=torch.cat(next_tokens),
            positions=torch.cat(positions),
            row_counts=row_counts,
            roots=roots,
            step_tokens=torch.cat(step_tokens, dim=1),
            step_positions=torch.cat(step_positions, dim=1),
            targets=torch.cat(targets, dim=1),
            target_probs=logits.softmax(-1),
            labels=torch.cat(labels, dim=1),
        )


def _choose(count: int, share: float, generator: np.random.Generator) -> Indices:
    """A random share of range(count), at least one where there is any, ascending."""
    size = min(count, max(1, round(share * count)))
    return np.sort(generator.choice(count, size=size, replace=False))


def usable(sequence: Sequence) -> bool:
    """Whether there is at least one root: an answer of three tokens or more."""
    return len(sequence.features) - 1 > sequence.answer_start


def stream(
    store: SequenceStore, skip_shards: int, rows: int, generator: np.random.Generator
) -> Iterator[list[Sequence]]:
    """Endless groups of sequences of about `rows` rows, shards in random order.

    The folder is listed anew for every shard, so what a generator adds meanwhile is used.
    """
    seen: set[str] = set()
    group: list[Sequence] = []
    while True:
        shards = store.shards()[skip_shards:]
        fresh = [shard for shard in shards if shard.name not in seen]
        if not fresh:
            seen.clear()
            fresh = shards
        shard = fresh[int(generator.integers(len(fresh)))]
        seen.add(shard.name)
        sequences = [s for s in SequenceStore.read(shard) if usable(s)]
        for index in generator.permutation(len(sequences)):
            group.append(sequences[index])
            if sum(len(s.features) for s in group) >= rows:
                yield group
                group = []


def draft_vocabulary(store: SequenceStore, size: int, vocab_size: int) -> Tensor:
    """The `size` most frequent tokens of the answers [size], ascending.

    Prompts count a tenth, and what was never seen goes by id, since a byte-pair vocabulary is
    numbered from frequent to rare merges.
    """
    counts = 0.01 * (1 - torch.arange(vocab_size, dtype=torch.float64) / vocab_size)
    for shard in store.shards():
        for sequence in SequenceStore.read(shard):
            tokens = sequence.tokens.long()
            start = sequence.answer_start
            counts += torch.bincount(tokens[start:], minlength=vocab_size)
            counts += 0.1 * torch.bincount(tokens[:start], minlength=vocab_size)
    return counts.topk(size).indices.sort().values
