"""Finished conversations on disk, with what the target saw at each token.

A shard is one safetensors file, written whole or not at all, so generation can stop anywhere and
go on, and training may read what is there while more is being written.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor


class Sequence(NamedTuple):
    """One conversation. hidden[i] predicts tokens[i + 1]; the last token was never fed."""

    tokens: Tensor  # [n + 1] int32
    answer_start: int
    features: Tensor  # [n, 3h] bfloat16, inputs of the captured layers
    hidden: Tensor  # [n, h] bfloat16, normed output


class SequenceStore:
    """A folder of shards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def shards(self) -> list[Path]:
        """Complete shards, oldest first."""
        return sorted(self.folder.glob("shard-*.safetensors"))

    def add(self, sequences: list[Sequence], seed: int) -> None:
        """Write one shard; generators that run side by side differ in their seed."""
        number = len(list(self.folder.glob(f"shard-*-{seed:03d}.safetensors")))
        target = self.folder / f"shard-{number:05d}-{seed:03d}.safetensors"
        partial = target.with_suffix(".partial")
        lengths = [len(s.features) for s in sequences]
        save_file(
            {
                "tokens": torch.cat([s.tokens for s in sequences]),
                "lengths": torch.tensor(lengths),
                "answer_starts": torch.tensor([s.answer_start for s in sequences]),
                "features": torch.cat([s.features for s in sequences]),
                "hidden": torch.cat([s.hidden for s in sequences]),
            },
            partial,
        )
        os.replace(partial, target)

    @staticmethod
    def read(shard: Path) -> list[Sequence]:
        """All sequences of a shard."""
        data = load_file(shard)
        sequences = []
        row = 0
        for index, (length, start) in enumerate(
            zip(data["lengths"].tolist(), data["answer_starts"].tolist(), strict=True)
        ):
            # Each sequence has one token more than it has features.
            first_token = row + index
            sequences.append(
                Sequence(
                    data["tokens"][first_token : first_token + length + 1],
                    start,
                    data["features"][row : row + length],
                    data["hidden"][row : row + length],
                )
            )
            row += length
        return sequences
