"""How the benchmark's figures are worked out, on tiny networks: counts, ratios, prompts.

What the figures are on the real model is the benchmark's business; no time is asserted here.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import (
    acceptance,
    floor,
    overhead,
    peers,
    proofs,
    ratios,
    sampling_cost,
    speed,
)
from benchmarks.acceptance import Answer, before_loop, loop_start
from benchmarks.bench import Bench
from benchmarks.decoding import requests_of, serve
from benchmarks.figures import Figure, Result, judged
from benchmarks.fresh_clone import Clones
from benchmarks.network_clock import network_clock
from benchmarks.prompts import MAX_PROMPT_TOKENS, PromptFolder
from engine.errors import UserError
from engine.serving import LiveServer
from engine.tiny import tiny_server
from policies.registry import make

VOCAB = 16


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """Tiny networks with room for an answer of 192 tokens, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_server(0, VOCAB, capacity_tokens=320)
    torch.set_num_threads(threads)


def prompts(name: str, count: int = 24) -> list[list[int]]:
    """The same made-up prompts for the same name."""
    rng = np.random.default_rng(len(name))
    return [rng.integers(0, VOCAB, rng.integers(4, 12)).tolist() for _ in range(count)]


class Reference:
    """Answers as transformers' model does, by the server's own ordinary decoding."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.asked: list[tuple[int, int, dict[str, int]]] = []  # requests, new tokens, how

    def generate(
        self,
        ids: torch.Tensor,
        attention_mask: torch.Tensor,
        min_new_tokens: int,
        max_new_tokens: int,
        **how: int,
    ) -> torch.Tensor:
        assert min_new_tokens == max_new_tokens
        self.asked.append((len(ids), max_new_tokens, how))
        prompts = [row[seen.bool()].tolist() for row, seen in zip(ids, attention_mask, strict=True)]
        requests = requests_of(prompts, max_new_tokens - 1)
        outputs = serve(self.server, requests, make("autoregressive"), len(prompts)).outputs
        return torch.cat((ids, torch.tensor(outputs)), dim=1)


@pytest.fixture
def bench(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A quick bench on the tiny server; its reference is the server's own ordinary decoding."""
    monkeypatch.setattr(speed, "TOKENS", 12)
    monkeypatch.setattr(acceptance, "QUICK_ITERATIONS", 200)

    return Bench(
        load_server=lambda: server,
        load_prompts=lambda name, _: prompts(name),
        load_transformers=lambda _: Reference(server),
        clones=Clones(Path()),
        quick=True,
    )


# -- ratios ----------------------------------------------------------------------------------------


def test_a_ratio_of_sums_is_not_a_mean_of_ratios() -> None:
    rng = np.random.default_rng(0)
    ratio = ratios.of_sums(np.array([30.0, 1.0]), np.array([10.0, 1.0]), rng)
    assert ratio.value == pytest.approx(31 / 11)
    assert ratio.low <= ratio.value <= ratio.high
    assert (ratio.low, ratio.high) == (1.0, 3.0)  # one of the two drawn twice


def test_equal_units_leave_no_doubt_and_one_unit_tells_nothing() -> None:
    rng = np.random.default_rng(0)
    ones = np.ones(5)
    assert ratios.of_rates(2 * ones, ones, ones, ones, rng) == (2.0, 2.0, 2.0)
    assert str(ratios.of_sums(ones[:1], ones[:1], rng)) == "1.00"
    assert np.isnan(ratios.of_sums(ones[:0], ones[:0], rng).value)


# -- acceptance ------------------------------------------------------------------------------------


def test_a_loop_begins_where_24_tokens_are_said_again() -> None:
    fresh = list(range(50))
    assert loop_start(fresh) == 50
    assert loop_start([*fresh, *fresh]) == 74  # the 24th of the second round
    assert loop_start([*fresh, *[7] * 60]) == 50 + 1 + 24
    answer = Answer([1], [*fresh, *fresh], starts=[1, 40, 73, 74], emitted=[39, 33, 1, 26])
    assert before_loop(answer) == [39, 33, 1]


def test_acceptance_counts_what_the_engine_counts(bench: Bench, server: LiveServer) -> None:
    made = acceptance.measure(bench, "gsm8k")
    raw = made.raw
    assert made.value == pytest.approx(raw["emitted_tokens"] / raw["request_iterations"])
    assert 1.0 <= made.value <= 7.0
    assert (
        acceptance.QUICK_ITERATIONS <= raw["request_iterations"] < acceptance.QUICK_ITERATIONS + 16
    )
    assert not made.broken
    # every iteration emits its accepted positions and one more, but for cut ends
    assert raw["emitted_tokens"] <= sum(raw["accepted_by_depth"]) + raw["request_iterations"]
    assert raw["proposed_by_depth"][0] <= raw["request_iterations"]
    assert raw["proposed_by_depth"][6:] == [0, 0]


def test_an_exhausted_set_goes_on_with_its_answers_then_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptance, "ANSWER_TOKENS", 60)
    bench.load_prompts = lambda name, _: [[1] * 130, [4, 5] * 66]
    tally = acceptance.collect(bench, "alpaca", bench.prompts("alpaca"), 10**6)
    # 320 rows, 65 of them for tree and root: two rounds of 61 tokens fit behind 132, not three
    assert [len(a.tokens) for a in tally.answers] == [122, 122]
    assert [sum(a.emitted) for a in tally.answers] == [120, 120]
    assert tally.count == sum(len(a.emitted) for a in tally.answers)
    monkeypatch.setattr(acceptance, "collect", lambda *_: tally)
    made = acceptance.measure(bench, "alpaca")
    assert made.broken == f"the set is exhausted after {tally.count} of 200 iterations"


def test_answers_go_on_where_they_were_cut(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "ANSWER_TOKENS", 20)
    in_parts = acceptance.collect(bench, "x", [[1, 2, 3]], 40).answers[0]
    monkeypatch.setattr(acceptance, "ANSWER_TOKENS", 80)
    whole = acceptance.collect(bench, "x", [[1, 2, 3]], 40).answers[0]
    shorter = min(len(in_parts.tokens), len(whole.tokens))
    assert shorter > 21
    assert in_parts.tokens[:shorter] == whole.tokens[:shorter]


def test_the_average_needs_every_set(bench: Bench) -> None:
    figures = [Figure(f"acceptance_{n}", n, None, "m:f") for n in "ab"]
    row = judged(figures[0], Result(2.0, "2"))
    bench.rows = {row.name: row}
    with pytest.raises(UserError, match="needs acceptance_b, not measured"):
        acceptance.average(bench, "acceptance_a acceptance_b")
    other = judged(figures[1], Result(3.0, "3"))
    bench.rows = {row.name: row, other.name: other}
    assert acceptance.average(bench, "acceptance_a acceptance_b").value == 2.5


# -- speed -----------------------------------------------------------------------------------------


def test_batch_1_reports_on_prompts_that_chose_nothing(bench: Bench) -> None:
    one, two = speed.split_prompts(bench, speed.SETS, 2, 3)
    assert [name for name, _ in one] == ["gsm8k", "humaneval"] * 2
    assert len(two) == 6
    assert not [p for p in two if p in one]
    made = speed.batch1(bench, "gsm8k humaneval")
    best, rates = made.raw["best"], made.raw["tokens_per_s"]
    assert best in speed.QUICK_TREES
    assert made.value == pytest.approx(rates[best] / rates["autoregressive"])
    assert made.raw["same_text"] == "4 of 4"  # float64: a tree changes nothing
    assert set(made.raw["tried_tokens_per_s"]) == set(speed.QUICK_TREES)


def test_who_goes_first_rotates(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    real = speed.serve

    def noted(server: Any, requests: Any, controller: Any, running: int = 1) -> Any:
        order.append(controller.name)
        return real(server, requests, controller, running)

    monkeypatch.setattr(speed, "serve", noted)
    monkeypatch.setattr(speed, "TOKENS", 4)
    found = speed.in_turns(bench, "", [[p] for p in prompts("x", 3)], ("chain(1)", "chain(2)"), 1)
    assert order == ["chain(1)", "chain(2)", "chain(2)", "chain(1)", "chain(1)", "chain(2)"]
    assert [s.tokens for s in found["chain(1)"]] == [4, 4, 4]


def test_batch_8_counts_iterations_with_all_eight_busy(bench: Bench) -> None:
    made = speed.batch8(bench, "gsm8k humaneval")
    best, rates = made.raw["best"], made.raw["tokens_per_s"]
    assert made.value == pytest.approx(rates[best] / rates["autoregressive"])
    served = serve(bench.server, requests_of(prompts("x", 8), 5), make("autoregressive"), 8)
    assert (served.tokens, served.full_tokens, served.full_iterations) == (40, 40, 5)
    served = serve(bench.server, requests_of(prompts("x", 9), 5), make("autoregressive"), 8)
    assert (served.tokens, served.full_tokens, served.iterations) == (45, 40, 10)


def test_transformers_is_compared_on_equal_counts(bench: Bench) -> None:
    reference = Reference(bench.server)
    bench.load_transformers = lambda _: reference
    made = speed.transformers(bench, "gsm8k humaneval")
    tokens = made.raw["new_tokens"]
    assert [count for _, count, _ in reference.asked[1:]] == [1, tokens + 1] * 4
    assert made.raw["same_text"] == "4 of 4"
    times = made.raw["decode_seconds"]
    assert made.value == pytest.approx(sum(times["transformers"]) / sum(times["draftgym"]))


# -- the engine's figures --------------------------------------------------------------------------


def test_assisted_takes_their_best_lookup(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "TOKENS", 12)
    monkeypatch.setattr(peers, "TREES", ("chain(2)", "chain(3)", "eagle3(3,2,4)"))
    reference = Reference(bench.server)
    bench.load_transformers = lambda _: reference
    made = peers.assisted(bench, "gsm8k humaneval")
    looked = {how.get("prompt_lookup_num_tokens") for _, _, how in reference.asked}
    assert looked == {*peers.LOOKUPS, None}
    ours, theirs, _ = made.raw["tokens_per_s"].values()
    assert made.value == pytest.approx(ours / theirs, rel=1e-6)


def test_batched_gives_both_sides_the_same_requests(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "TOKENS", 24)
    reference = Reference(bench.server)
    bench.load_transformers = lambda _: reference
    made = peers.batched(bench, "gsm8k humaneval")
    assert {requests for requests, _, _ in reference.asked} == {peers.BATCH}
    assert reference.asked[-1][1] == 1 and reference.asked[-2][1] == made.raw["new_tokens"] + 1
    rates = made.raw["tokens_per_s"]
    assert made.value == pytest.approx(rates["draftgym"] / rates["transformers"])


def test_the_floor_reads_what_a_step_reads(bench: Bench) -> None:
    made = floor.floor(bench, "gsm8k")
    assert made.raw["weight_bytes"] == bench.server.decoder.weight_bytes()
    assert made.value == pytest.approx(made.raw["step_ms"] / made.raw["floor_ms"])
    assert len(floor.read_s(1 << 20, 3)) == 3


# -- draft step and overhead -----------------------------------------------------------------------


def test_draft_step_is_a_fifth_of_what_six_cost_over_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = overhead.draft_step(bench, "gsm8k")
    step, target = made.raw["step_ms"]["width_1"], made.raw["one_token_target_step_ms"]
    assert made.value == step
    assert made.raw["share_of_target_step"] == pytest.approx(step / target)
    assert made.raw["iterations_each"] >= overhead.QUICK_BLOCKS - overhead.SKIPPED
    # with times made up: 4 ms for a first step, 2 for every other
    real = overhead.iterations

    def timed(engine: Any, controller: Any) -> Iterator[Any]:
        for outcome in real(engine, controller):
            depth = controller.controller.planned[-1]
            draft_s = 0.004 + 0.002 * (depth - 1) if depth else 0.0
            yield outcome._replace(draft_s=draft_s, verify_s=0.05)

    monkeypatch.setattr(overhead, "iterations", timed)
    made = overhead.draft_step(bench, "gsm8k")
    assert made.value == pytest.approx(2.0)
    assert made.raw["share_of_target_step"] == pytest.approx(0.04)
    assert made.meets_alternative


def test_overhead_is_what_the_networks_leave(bench: Bench) -> None:
    made = overhead.overhead(bench, "gsm8k humaneval")
    raw = made.raw
    whole, networks = np.array(raw["iteration_ms"]), np.array(raw["network_ms"])
    assert raw["batch"] == 16
    assert len(whole) == overhead.QUICK_FULL_ITERATIONS
    assert (networks > 0).all()
    assert (networks < whole).all()
    assert made.value == pytest.approx(100 * (whole - networks).sum() / whole.sum())


def test_the_network_clock_leaves_no_trace(server: LiveServer) -> None:
    before = server.decoder.logits
    with network_clock(server) as clock:
        serve(server, requests_of(prompts("x", 1), 3), make("chain(2)"))
        assert clock.take() > 0
        assert clock.take() == 0
    assert server.decoder.logits == before
    assert "forward" not in vars(server.head)


# -- prompts ---------------------------------------------------------------------------------------


class Words:
    """A tokenizer of words whose template adds two."""

    def chat_prompt(self, user: str) -> list[int]:
        return [0, *(len(word) for word in user.split()), 0]


def test_prompts_fit_and_articles_are_used_up(tmp_path: Path) -> None:
    article = " ".join(["Summarize:", *["word"] * 1200])
    rows = [
        {"category": "summarization", "turns": [article]},
        {"category": "summarization", "turns": ["Summarize: three short words"]},
        {"category": "writing", "turns": ["no article"]},
    ]
    with gzip.open(tmp_path / "spec_bench.jsonl.gz", "wt") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
    with gzip.open(tmp_path / "gsm8k.jsonl.gz", "wt") as lines:
        lines.writelines(json.dumps({"turns": [" ".join(["x"] * n)]}) + "\n" for n in (600, 3))
    folder = PromptFolder(tmp_path, Words())  # type: ignore[arg-type]
    found = folder.ids("summarization")
    # first pieces first; the rest of the article begins as a prompt of its own
    assert sorted(len(p) for p in found[:2]) == [6, MAX_PROMPT_TOKENS]
    # 509 words and one to say what to do, then the 182 that are left
    assert [len(p) for p in found[2:]] == [MAX_PROMPT_TOKENS, 182 + 3]
    assert sorted(map(len, folder.ids("gsm8k"))) == [5, MAX_PROMPT_TOKENS]
    assert folder.ids("gsm8k") == folder.ids("gsm8k")
    with pytest.raises(UserError, match="no prompts at"):
        folder.ids("alpaca")


# -- sampling and proofs ---------------------------------------------------------------------------


def test_sampling_is_compared_on_the_same_steps(bench: Bench) -> None:
    made = sampling_cost.cost(bench, "gsm8k humaneval")
    times = made.raw["verify_ms"]
    assert made.value == pytest.approx(times["sampled"] / times["greedy"])
    assert set(made.raw["nodes"]["greedy"]) == set(made.raw["nodes"]["sampled"]) == {16 * 5}


def test_proofs_are_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "QUICK_CASES", 8)
    monkeypatch.setattr(proofs, "QUICK_SCHEDULES", 2)
    made = proofs.enumeration(bench, "")
    assert (made.value, made.broken) == (0.0, "")
    made = proofs.schedules(bench, "")
    assert (made.value, made.text, made.broken) == (0.0, "0 of 2", "")
