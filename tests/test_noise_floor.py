"""The floor under a margin: answers in two number formats, on tiny networks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from benchmarks import noise_floor
from benchmarks.bench import Bench
from benchmarks.decoding import requests_of, serve
from benchmarks.fresh_clone import Clones
from engine.serving import LiveServer
from engine.tiny import tiny_decoder, tiny_server
from eval.lossless import other_format
from models.decoder import Decoder
from policies.registry import make

VOCAB = 32


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """In float32."""
    made = tiny_server(0, VOCAB, dtype="float32")
    yield made
    made.close()


@pytest.fixture
def bench(server: LiveServer) -> Bench:
    """Nine made-up prompts a set."""
    texts = [[1 + (3 * i + j) % (VOCAB - 1) for j in range(6)] for i in range(9)]
    return Bench(lambda: server, lambda *_: texts, lambda _: None, Clones(Path()), quick=True)


def test_one_format_keeps_all_answers_and_another_may_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def same(_: LiveServer, dtype: torch.dtype, __: int) -> LiveServer:
        asked.append(dtype)
        return tiny_server(0, VOCAB, dtype="float32")

    monkeypatch.setattr(noise_floor, "in_format", same)
    kept = noise_floor.floor(bench, "")
    assert asked == [torch.bfloat16]
    assert kept.value == 1.0 and kept.raw["gaps"] == []

    def other(_: LiveServer, dtype: torch.dtype, __: int) -> LiveServer:
        return tiny_server(1, VOCAB, dtype="float32")  # other weights altogether

    monkeypatch.setattr(noise_floor, "in_format", other)
    changed = noise_floor.floor(bench, "")
    assert changed.value < 1.0
    assert changed.raw["gaps"] and min(changed.raw["gaps"]) >= 0.0


def test_the_other_format_is_the_same_target_without_a_drafter(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_folder(_: Path, dtype: torch.dtype, __: torch.device) -> Decoder:
        return tiny_decoder(0, VOCAB, dtype=str(dtype).removeprefix("torch."))

    monkeypatch.setattr(other_format, "resolve", Path)
    monkeypatch.setattr(Decoder, "from_folder", from_folder)
    with closing(other_format.in_format(server, torch.bfloat16, 8)) as plain:
        assert plain.decoder.dtype == torch.bfloat16 and plain.head is None
        served = serve(plain, requests_of([[1, 2, 3]] * 3, 5), make("autoregressive"), 3)
    assert [len(output) for output in served.outputs] == [6, 6, 6]


def test_texts_part_at_the_first_difference() -> None:
    assert noise_floor.common([1, 2, 3], [1, 2, 4]) == 2
    assert noise_floor.common([1, 2], [1, 2, 4]) == 2
