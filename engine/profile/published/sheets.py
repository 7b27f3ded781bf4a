"""Data sheets of GPUs and shapes of models, and what a roofline makes of the two.

The rules here stand in wherever no public table has a figure; whoever uses one labels the result as
modelled. Shares of a GPU's rated figures that kernels reach are those of research/engines.md §7.2.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.protocol import Floats

SHEETS = Path(__file__).with_name("sheets.toml")
BANDWIDTH_SHARE, COMPUTE_SHARE = 0.80, 0.65
BYTES = 2  # a bfloat16
HEAD_DIM = 128
LAUNCH_S = 150e-6
"""One draft pass of a few small kernels: it is bound by launching them, 0.2 to 0.5 ms at small
batches with the weights' reading included (research/engines.md §7.2)."""
COLLECTIVE_S = 10e-6
"""An all-reduce of a few bytes with the one-shot kernels of a serving engine. Vidur's tables have
16 to 60 µs, but those are NCCL's, which serving engines avoid at such sizes."""
DRAFT_VOCABULARY = 32_000  # of EAGLE-3 heads for Llama 3.1
# Sizes that vLLM captures by default; an engine pads a pass to the next one.
GRAPH_SIZES = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))


@dataclass(frozen=True)
class Device:
    """One GPU by its data sheet; `bus_gb_s` as in sheets.toml."""

    title: str
    bandwidth_gb_s: float
    bf16_tflops: float
    memory_gib: int
    limit_watts: float
    idle_watts: float
    bus_gb_s: float

    def pass_s(self, tokens: Floats, parameters: float, gpus: int = 1) -> Floats:
        """Seconds to put tokens [N] through so many parameters: max(reading, arithmetic)."""
        reading = BYTES * parameters / (BANDWIDTH_SHARE * self.bandwidth_gb_s * 1e9 * gpus)
        token_s = 2 * parameters / (COMPUTE_SHARE * self.bf16_tflops * 1e12 * gpus)
        return np.maximum(reading, token_s * np.asarray(tokens, float))

    def read_s(self, count: float, gpus: int = 1) -> float:
        """Seconds to read so many bytes, spread over the GPUs."""
        return count / (BANDWIDTH_SHARE * self.bandwidth_gb_s * 1e9 * gpus)

    def attend_s(self, shape: Shape, gpus: int = 1) -> float:
        """Seconds of arithmetic for a token and one cached token that it attends to, all layers."""
        operations = 4 * shape.layers * shape.heads * HEAD_DIM
        return operations / (COMPUTE_SHARE * self.bf16_tflops * 1e12 * gpus)

    def collective_s(self, tokens: Floats, shape: Shape, gpus: int, layers: int) -> Floats:
        """Seconds of the two all-reduces of each layer; 0 on one GPU."""
        sent = np.asarray(tokens, float) * shape.hidden * BYTES / (self.bus_gb_s * 1e9)
        return 2 * layers * (COLLECTIVE_S + sent) * (gpus > 1)


@dataclass(frozen=True)
class Shape:
    """A Llama-like decoder."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int

    @property
    def layer_parameters(self) -> int:
        """Attention and feed-forward of one layer, norms aside."""
        attention = 2 * self.heads + 2 * self.kv_heads
        return self.hidden * (attention * HEAD_DIM + 3 * self.intermediate)

    @property
    def head_parameters(self) -> int:
        """The LM head; the embedding has as many and is not read in a pass."""
        return self.hidden * self.vocabulary

    @property
    def weight_bytes(self) -> int:
        """Everything that lies in memory."""
        return BYTES * (self.layers * self.layer_parameters + 2 * self.head_parameters)

    @property
    def read_bytes(self) -> int:
        """Read by a one-token pass."""
        return self.weight_bytes - BYTES * self.head_parameters

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of all layers."""
        return 2 * self.layers * self.kv_heads * HEAD_DIM * BYTES

    @property
    def draft_parameters(self) -> tuple[int, int]:
        """An EAGLE-3 head's, in its first pass and in a further one.

        One layer whose Q, K and V read twice the width, and a head over the draft vocabulary; the
        first pass folds three of the target's layers into one as well.
        """
        wider = self.hidden * (self.heads + 2 * self.kv_heads) * HEAD_DIM
        further = self.layer_parameters + wider + self.hidden * DRAFT_VOCABULARY
        return further + 3 * self.hidden**2, further


def device(name: str) -> Device:
    """The GPU of that name in sheets.toml."""
    return Device(**_sheets()["device"][name])


def shape(model: str) -> Shape:
    """The shape of that model in sheets.toml."""
    return Shape(**_sheets()["model"][model])


def _sheets() -> dict[str, Any]:
    return tomllib.loads(SHEETS.read_text(encoding="utf-8"))
