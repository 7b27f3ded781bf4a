"""Sampled text through the whole engine: the target's law over seeds, one text a seed.

The reference is the plain decoder over the whole text anew for every token, with the twins' noise,
filters and penalties: no engine, no cache, no tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy import stats

from engine.classes import DEFAULT_CLASSES
from engine.loop import EngineSettings
from engine.protocol import Controller, Limits
from engine.request import Request, Status
from engine.sampling.params import SamplingParams
from engine.serving import LiveServer
from engine.tiny import tiny_decoder, tiny_server
from models.kv_cache import TokenBatch
from tests.random_plans import Choice, ListedPlans, RandomMasks, RandomPlans
from tests.scripted_drafter import ScriptedDrafter
from tests.twins import draw as twin
from tests.twins.penalise import penalise

VOCAB = 6
LIMITS = Limits(slots=12, max_depth=4, max_width=3, max_nodes=10)
CAPACITY = 64
ANSWER_TOKENS = 12
DECODER = tiny_decoder(0, VOCAB)
DEEP = Choice(4, 3, 10, 120, 64, 12)
PARAMS = (
    SamplingParams(temperature=1.0, seed=11),
    SamplingParams(temperature=0.7, top_k=4, seed=12, repetition_penalty=1.4),
    SamplingParams(temperature=1.3, top_p=0.8, seed=13, logprobs=True),
    SamplingParams(temperature=1.0, min_p=0.1),
    SamplingParams(repetition_penalty=1.2, logprobs=True),
    SamplingParams(),
)


@torch.inference_mode()
def levels_after(text: list[int]) -> list[float]:
    """The decoder's logits after `text`, from one plain pass over all of it."""
    n = len(text)
    rows = torch.arange(n)
    mask = torch.ones(1, n, n, dtype=torch.bool).tril()
    batch = TokenBatch(torch.tensor(text), rows, torch.zeros_like(rows), rows, rows, mask, 0, 1)
    hidden, _ = DECODER.forward(batch, DECODER.new_cache(1, n))
    return DECODER.logits(hidden[-1:])[0].tolist()


@cache
def answer(prompt: tuple[int, ...], params: SamplingParams, seed: int) -> tuple[list, list]:
    """Tokens of ordinary decoding, and their log probabilities."""
    text, logs = list(prompt), []
    for position in range(ANSWER_TOKENS):
        levels = levels_after(text)
        seen = penalise(levels, set(text), params.repetition_penalty)
        token = twin.draw(seen, params, seed, position)
        logs.append(float(torch.tensor(levels, dtype=torch.float64).log_softmax(-1)[token]))
        text.append(token)
    return text[len(prompt) :], logs


def requests() -> list[Request]:
    """Two of every kind of parameters, with prompts of their own."""
    rng = np.random.default_rng(0)
    return [
        Request(
            id=i,
            slo_class=i % 3,
            prompt=rng.integers(0, VOCAB, 1 + 3 * (i % 4)).tolist(),
            max_tokens=ANSWER_TOKENS - i % 2,
            arrival_s=0.001 * i,
            sampling=PARAMS[i % len(PARAMS)],
        )
        for i in range(2 * len(PARAMS))
    ]


def wanted(request: Request) -> tuple[list[int], list[float]]:
    """What ordinary decoding answers to a request."""
    seed = request.sampling.seed
    key = request.id if seed is None else seed
    tokens, logs = answer(tuple(request.prompt), request.sampling, key)
    logs = logs if request.sampling.logprobs else []
    return tokens[: request.max_tokens], logs[: request.max_tokens]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """The tiny networks in float64, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_server(0, VOCAB, limits=LIMITS, capacity_tokens=CAPACITY)
    torch.set_num_threads(threads)


def serve(
    server: LiveServer, controller: Controller, served: list[Request], prefill_tokens: int = 16
) -> dict[str, int]:
    """Serve all; the engine's counters."""
    settings = EngineSettings(LIMITS, CAPACITY, prefill_tokens)
    engine = server.engine(served, DEFAULT_CLASSES, settings)
    assert all(r.status is Status.FINISHED for r in engine.serve(controller))
    return dict(engine.counters)


def controllers() -> dict[str, Controller]:
    """Ordinary decoding, fixed trees, and plans drawn at random."""
    fixed = {
        "ordinary": ListedPlans([DEEP._replace(depth=0)]),
        "chain": ListedPlans([DEEP._replace(width=1)]),
        "deep tree": ListedPlans([DEEP]),
        "changing tree": ListedPlans([DEEP, DEEP._replace(depth=1), DEEP._replace(nodes=3)]),
    }
    # Many more plans at random, sampled texts among them: `benchmarks.engine`, its schedules.
    rng = np.random.default_rng(0)
    return {**fixed, "plans": RandomPlans(rng), "masks": RandomMasks(rng)}


@pytest.mark.parametrize("scripted", [False, True], ids=["head", "script"])
def test_a_seed_gives_one_text_under_every_controller(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, scripted: bool
) -> None:
    if scripted:
        texts = {r.id: r.prompt + wanted(r)[0] for r in requests()}
        drafter = ScriptedDrafter(texts, VOCAB, np.random.default_rng(0), 0.8)
        monkeypatch.setattr(server.backend, "drafter", drafter)
    for number, (name, controller) in enumerate(controllers().items()):
        served = requests()
        counters = serve(server, controller, served, prefill_tokens=3 + 7 * number)
        for request in served:
            tokens, logs = wanted(request)
            assert request.output == tokens, (name, request.sampling)
            assert request.logprobs == pytest.approx(logs, abs=1e-9), (name, request.sampling)
        length = counters["emitted"] / counters["request_iterations"]
        assert length > 1.5 or not scripted or name != "deep tree"


def test_the_seed_matters(server: LiveServer) -> None:
    one, other = requests(), requests()
    for request in other:
        request.sampling = replace(request.sampling, seed=99)
    for served in (one, other):
        serve(server, ListedPlans([DEEP]), served)
    for a, b in zip(one, other, strict=True):
        assert (a.output != b.output) == (a.sampling.temperature > 0)


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(1.0, top_p=0.95)])
def test_a_token_that_makes_float32_nan_fails_those_that_hold_it(sampling: SamplingParams) -> None:
    """Through the float32 kernels of the whole pass, which are compiled with `fastmath`."""
    prompts = [[i % 15, (3 * i) % 15, *([15] if i in (2, 7) else [i % 7])] for i in range(10)]

    def answers(bad: float | None) -> list[tuple[Status, list[int]]]:
        small = tiny_server(0, 16, "float32", limits=LIMITS, capacity_tokens=CAPACITY)
        if bad is not None:
            small.decoder.embedding[15] = bad
        served = [Request(i, 0, p, 8, 0.0, sampling=sampling) for i, p in enumerate(prompts)]
        settings = EngineSettings(LIMITS, CAPACITY, 16)
        records = small.engine(served, DEFAULT_CLASSES, settings).serve(
            ListedPlans([DEEP._replace(depth=0)])
        )
        status = {record.id: record.status for record in records}
        return [(status[request.id], list(request.output)) for request in served]

    clean, broken = answers(None), answers(float("nan"))
    assert all(status is Status.FINISHED for status, _ in clean)
    for number, (status, text) in enumerate(clean):
        # The last token of an answer is never read.
        read = prompts[number] + text[:-1]
        if 15 in prompts[number]:
            assert broken[number] == (Status.FAILED, [])
        elif 15 in read:
            assert broken[number] == (Status.FAILED, text[: text.index(15) + 1])
        else:
            assert broken[number] == (status, text)
    assert sum(status is Status.FAILED for status, _ in broken) < len(prompts)


# -- the law over seeds, and what breaks it ------------------------------------------------------

SEEDS = 400
PROMPT = [5, 1, 0]  # one whose law is broad, so that a margin has much to spoil
WARM = SamplingParams(temperature=1.0, top_p=0.97, repetition_penalty=1.1)


@cache
def law_of_two() -> np.ndarray:
    """Exact probability of every pair of second and third tokens [VOCAB, VOCAB]."""

    def law(text: list[int]) -> np.ndarray:
        levels = penalise(levels_after(text), set(text), WARM.repetition_penalty)
        return np.array(twin.law(levels, WARM))

    pairs = np.zeros((VOCAB, VOCAB))
    for a, first in enumerate(law(PROMPT)):
        for b, second in enumerate(law([*PROMPT, a])):
            if first * second > 0:
                pairs[b] += first * second * law([*PROMPT, a, b])
    return pairs


def pairs(server: LiveServer, margin: float) -> np.ndarray:
    """How often each pair of second and third tokens comes out over the seeds, from trees."""
    served = [Request(i, 0, PROMPT, 3, 0.0, sampling=replace(WARM, seed=i)) for i in range(SEEDS)]
    counters = serve(server, ListedPlans([DEEP], margin), served, prefill_tokens=64)
    assert counters["emitted"] > 1.05 * counters["request_iterations"]
    counts = np.zeros((VOCAB, VOCAB))
    for request in served:
        counts[request.output[1], request.output[2]] += 1
    return counts


def fit(counts: np.ndarray, law: np.ndarray) -> tuple[float, float]:
    """p-value of the chi-square (rare pairs pooled), and total variation over its null band."""
    assert not counts[law == 0].any()
    expected = SEEDS * law[law > 0]
    few = expected < 5
    seen = np.append(counts[law > 0][~few], counts[law > 0][few].sum())
    p = stats.chisquare(seen, np.append(expected[~few], expected[few].sum())).pvalue
    variation = np.abs(counts / SEEDS - law).sum() / 2
    # Mean of the total variation of n draws from the law itself (normal approximation).
    band = np.sqrt(law * (1 - law) / (2 * np.pi * SEEDS)).sum()
    return float(p), float(variation / band)


def test_tokens_follow_the_law_and_a_margin_breaks_it(server: LiveServer) -> None:
    p, variation = fit(pairs(server, margin=1.0), law_of_two())
    assert p > 1e-2
    assert variation < 1.3
    p, variation = fit(pairs(server, margin=0.5), law_of_two())
    assert p < 1e-4
    assert variation > 1.6


def test_the_reference_law_is_one(server: LiveServer) -> None:
    assert law_of_two().sum() == pytest.approx(1.0)
    assert (law_of_two() > 0).sum() > 20
