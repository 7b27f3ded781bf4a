"""The figure that counts where a tree's text departs from ordinary decoding's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import same_text
from benchmarks.bench import Bench
from benchmarks.fresh_clone import Clones
from benchmarks.unfinished import Unfinished
from engine.serving import LiveServer
from engine.tiny import tiny_server
from tests.ordinary_answers import _levels

PROMPTS = [[1, 2, 3, 4], [5, 6, 7], [8, 9, 10, 11, 12]]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_server(0, 16, capacity_tokens=192)
    torch.set_num_threads(threads)


@pytest.fixture
def bench(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(same_text, "TOKENS", 12)
    monkeypatch.setattr(same_text, "QUICK_TOKENS_COMPARED", 300)
    return Bench(
        lambda: server, lambda name, _: PROMPTS, lambda _: None, Clones(Path()), quick=True
    )


def test_equal_texts_have_no_departure(bench: Bench) -> None:
    result = same_text.departures(bench, "first second")
    assert result.value == 0 and not result.broken
    assert result.raw["compared"] >= 300


def test_another_token_is_a_departure_that_rounding_does_not_explain(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = same_text._texts

    def tampered(server: LiveServer, prompts: list, name: str, running: int) -> list[list[int]]:
        texts = true(server, prompts, name, running)
        if name == "chain(4)":
            texts[0][5] = (texts[0][5] + 1) % 16
        return texts

    monkeypatch.setattr(same_text, "_texts", tampered)
    result = same_text.departures(bench, "first")
    assert result.value > 0
    assert "chain(4) at token 5" in result.broken
    # What follows the first difference was not compared.
    assert {d["place"] for d in result.raw["departures"]} == {5}


def test_a_measurement_that_was_cut_goes_on_where_it_stood(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(same_text, "QUICK_TOKENS_COMPARED", 700)  # two batches
    whole = same_text.departures(bench, "first second").raw
    served = []
    true = same_text._texts

    def counted(server: LiveServer, prompts: list, name: str, running: int) -> list[list[int]]:
        served.append(name)
        return true(server, prompts, name, running)

    monkeypatch.setattr(same_text, "_texts", counted)
    bench.unfinished, bench.say = tmp_path, _cut
    with pytest.raises(_CutError):
        same_text.departures(bench, "first second")
    batch = len(served)
    bench.say = lambda _: None
    assert same_text.departures(bench, "first second").raw == whole
    assert len(served) == 2 * batch  # the first was not served again
    assert list(tmp_path.iterdir()) == []  # nothing is left of what is done


def test_what_was_measured_with_something_else_is_not_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "text.unfinished.json"
    Unfinished(path, {"dtype": "float32"}).save([1, 290, [], []])
    assert Unfinished(path, {"dtype": "float32"}).load() == [1, 290, [], []]
    assert Unfinished(path, {"dtype": "bfloat16"}).load() is None
    path.write_text("{", encoding="utf-8")
    assert Unfinished(path, {"dtype": "float32"}).load() is None


class _CutError(Exception):
    """Where a measurement was cut."""


def _cut(words: str) -> None:
    raise _CutError


def test_the_gap_is_that_of_the_likeliest_two(server: LiveServer) -> None:
    text = PROMPTS[0]
    first, second = sorted(_levels(server.decoder, [text])[0], reverse=True)[:2]
    # Both read the text in single precision, and which kernel computes depends on the machine.
    assert same_text.top_gap(server.decoder, text) == pytest.approx(first - second, abs=1e-5)
