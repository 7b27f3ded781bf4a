"""The sampler apart from the networks: parameters, filters, penalty, choices and failures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

from engine.backends.protocol import FAILED_TOKEN, Choices, new_choices
from engine.errors import UserError
from engine.kernels.walk import walk
from engine.protocol import Limits
from engine.request import Request
from engine.sampling.filters import floors
from engine.sampling.logprobs import emitted_logprobs
from engine.sampling.params import GREEDY, SamplingParams
from engine.sampling.sampler import Sampler
from engine.state import SlotState, TreeState
from tests.random_trees import Case, cases, keep_some, random_slots, random_trees
from tests.twins import draw as twin
from tests.twins.penalise import penalise as penalise_twin

VOCAB = 12


# -- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", float("nan")),
        ("repetition_penalty", 0.0),
        ("seed", -1),
        ("seed", 2**63),
        ("logprobs", 3),
        ("margin_guard", 0),
    ],
)
def test_values_out_of_range_are_named(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"{name} is {value!r}; expected "):
        SamplingParams(**{name: value})


def test_unknown_parameters_are_named() -> None:
    with pytest.raises(UserError, match="unknown sampling parameter beam, topk; known are temp"):
        SamplingParams.from_mapping({"topk": 3, "beam": 2, "seed": 1})
    with pytest.raises(UserError, match="give numbers"):
        SamplingParams.from_mapping({"temperature": "warm"})
    assert SamplingParams.from_mapping({}) == GREEDY
    assert SamplingParams.from_mapping({"top_k": 3}) == SamplingParams(top_k=3)


# -- filters, penalty and draw against their twins -----------------------------------------------


def random_params(rng: np.random.Generator) -> SamplingParams:
    """Any mixture of parameters, greedy now and then."""
    return SamplingParams(
        temperature=float(rng.choice([0.0, 0.3, 1.0, 2.0])),
        top_k=int(rng.choice([0, 1, 3, VOCAB, 50])),
        top_p=float(rng.choice([0.05, 0.5, 0.9, 1.0])),
        min_p=float(rng.choice([0.0, 0.07, 1.0])),
        repetition_penalty=float(rng.choice([0.8, 1.0, 1.3])),
        seed=int(rng.integers(2**40)),
        margin_guard=int(rng.choice([1, 3, 10, 99])),
    )


def floor_of(levels: torch.Tensor, params: SamplingParams) -> float:
    """The production threshold of one row."""
    row = np.array([params.temperature])
    best = levels.max(-1).values.double().numpy()
    k, p, least = np.array([params.top_k]), np.array([params.top_p]), np.array([params.min_p])
    return float(floors(levels, best, row, k, p, least)[0])


@pytest.mark.parametrize("vocab", [5, 12, 400, 2000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_filters_equal_their_twin(vocab: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(vocab)
    for _ in range(25):
        # bfloat16 makes ties; a wide nucleus needs more than the first look.
        scale = float(rng.choice([0.3, 2.0, 8.0]))
        levels = torch.from_numpy(scale * rng.standard_normal((1, vocab))).to(dtype)
        levels = levels.float() if dtype == torch.bfloat16 else levels
        # A probability that no sum of a few rounded ones hits exactly.
        params = replace(random_params(rng), temperature=0.7, top_p=float(rng.uniform(0.1, 0.99)))
        row = levels[0].tolist()
        got = np.flatnonzero(levels[0].double().numpy() >= floor_of(levels, params)).tolist()
        assert got == twin.support(row, params)


def test_rows_are_filtered_each_by_its_own_parameters() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        some = [replace(random_params(rng), temperature=0.9) for _ in range(6)]
        levels = torch.from_numpy(2 * rng.standard_normal((6, 300)))
        together = floors(
            levels,
            levels.max(-1).values.numpy(),
            np.array([p.temperature for p in some]),
            np.array([p.top_k for p in some]),
            np.array([p.top_p for p in some]),
            np.array([p.min_p for p in some]),
        )
        alone = [floor_of(levels[i : i + 1], p) for i, p in enumerate(some)]
        np.testing.assert_allclose(together, alone, rtol=1e-12)


class Pass:
    """A target pass over random trees, and the sampler that reads it (one replica)."""

    def __init__(self, case: Case, params: list[SamplingParams]) -> None:
        self.params, limits = params, case.limits
        self.trees: TreeState = random_trees(case)
        self.slots: SlotState = random_slots(case)
        keep_some(case, self.trees, self.slots.decoding)
        self.choices: Choices = new_choices(1, limits)
        self.sampler = Sampler(limits.slots)
        for s, p in enumerate(params):
            prompt = self.slots.text[0, s, : self.slots.prompt_tokens[0, s]].tolist()
            self.sampler.admit(s, Request(100 + s, 0, prompt, 9, 0.0, sampling=p))
        decoding, kept = self.slots.decoding[0], self.trees.kept[0]
        nodes = [
            (s, c)
            for s in np.flatnonzero(decoding).tolist()
            for c in [-1, *np.flatnonzero(kept[s]).tolist()]
        ]
        self.nodes = nodes
        self.slot = np.array([s for s, _ in nodes], np.int64)
        self.candidate = np.array([c for _, c in nodes], np.int64)
        self.logits = torch.from_numpy(2 * case.rng.standard_normal((len(nodes), VOCAB)))

    def choose(self, margin: float = 1.0) -> None:
        margins = np.full(len(self.params), margin)
        before = self.logits.clone()
        self.sampler.choose(
            self.logits, self.slot, self.candidate, margins, self.slots, self.trees, self.choices
        )
        assert torch.equal(before.nan_to_num(9.0), self.logits.nan_to_num(9.0))

    def chosen(self, s: int, c: int) -> int:
        """The token that the sampler put behind a node."""
        choices = self.choices
        return int(choices.root_token[0, s] if c < 0 else choices.node_token[0, s, c])

    def levels(self, s: int, c: int) -> list[float]:
        """Penalised logits of a node, by the twin."""
        text = self.slots.text[0, s, : self.slots.context[0, s] + 1].tolist()
        node = c
        while node >= 0:
            text.append(int(self.trees.token[0, s, node]))
            node = int(self.trees.parent[0, s, node])
        row = self.logits[self.nodes.index((s, c))].tolist()
        return penalise_twin(row, set(text), self.params[s].repetition_penalty)

    def position(self, s: int, c: int) -> int:
        """Output position of the token behind a node."""
        depth = 0 if c < 0 else int(self.trees.depth[0, s, c])
        return int(self.slots.emitted[0, s]) + depth

    def seed(self, s: int) -> int:
        seed = self.params[s].seed
        return 100 + s if seed is None else seed


def random_pass(case: Case, params: list[SamplingParams] | None = None) -> Pass:
    """One replica with random parameters by slot."""
    case = case._replace(replicas=1)
    return Pass(case, params or [random_params(case.rng) for _ in range(case.limits.slots)])


@given(cases())
def test_every_node_gets_the_token_of_the_twin(case: Case) -> None:
    it = random_pass(case)
    it.choose()
    for s, c in it.nodes:
        levels = it.levels(s, c)
        wanted = twin.draw(levels, it.params[s], it.seed(s), it.position(s, c))
        assert it.chosen(s, c) == wanted


@given(cases())
def test_margins_compare_scores_within_guard_and_support(case: Case) -> None:
    it = random_pass(case)
    it.choose(margin=0.5)
    for s, c in it.nodes:
        if c < 0:
            continue
        above, token = int(it.trees.parent[0, s, c]), int(it.trees.token[0, s, c])
        params, levels = it.params[s], it.levels(s, above)
        seed, position = it.seed(s), it.position(s, above)
        likeliest = sorted(levels, reverse=True)[: params.margin_guard]
        if token in twin.support(levels, params) and levels[token] >= likeliest[-1]:
            chosen = twin.draw(levels, params, seed, position)
            wanted = twin.scored(levels, token, params, seed, position) - twin.scored(
                levels, chosen, params, seed, position
            )
            assert it.choices.log_ratio[0, s, c] == pytest.approx(wanted, abs=1e-9)
            assert it.choices.log_ratio[0, s, c] <= 0
        else:
            assert it.choices.log_ratio[0, s, c] == -np.inf


@given(cases())
def test_greedy_requests_take_the_likeliest_token_with_or_without_a_margin(case: Case) -> None:
    it = random_pass(case, [GREEDY] * case.limits.slots)
    it.choose()
    assert [it.chosen(s, c) for s, c in it.nodes] == it.logits.argmax(-1).tolist()
    it.choose(margin=0.4)
    assert [it.chosen(s, c) for s, c in it.nodes] == it.logits.argmax(-1).tolist()


def test_the_noise_of_a_request_without_a_seed_is_its_own() -> None:
    texts = set()
    for number in range(40):
        sampler = Sampler(1)
        request = Request(number, 0, [1], 9, 0.0, sampling=SamplingParams(temperature=1.0))
        sampler.admit(0, request)
        texts.add(sampler.first(0, torch.zeros(1, 500), np.ones((1, 8), np.int64), 1))
    assert len(texts) > 30


def test_bfloat16_and_float32_logits_are_drawn_from_alike() -> None:
    params = SamplingParams(1.0, top_k=5, repetition_penalty=1.5, seed=3, logprobs=True)
    logits = torch.randn(1, 300, generator=torch.Generator().manual_seed(0)).bfloat16()
    answers = []
    for given_logits in (logits, logits.float(), logits.double()):
        sampler = Sampler(1)
        sampler.admit(0, Request(0, 0, [1, 2], 9, 0.0, sampling=params))
        token = sampler.first(0, given_logits, np.array([[1, 2, 0]]), 2)
        answers.append((token, round(float(sampler.first_logprob[0]), 9)))
    assert len(set(answers)) == 1


# -- failures and log probabilities --------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_logits_that_are_not_finite_fail_their_request_alone(
    bad: float, sampled: bool, dtype: torch.dtype
) -> None:
    limits = Limits(slots=3, max_depth=3, max_width=2, max_nodes=8)
    params = [SamplingParams(1.0 * sampled, top_p=0.9, logprobs=True)] * 3
    it, other = (Pass(Case(np.random.default_rng(2), 1, limits), params) for _ in range(2))
    assert it.slots.decoding.all()
    it.logits, other.logits = it.logits.to(dtype), other.logits.to(dtype)
    row = it.nodes.index((1, -1))
    it.logits[row, 3 if bad > 0 or np.isnan(bad) else slice(None)] = bad
    it.choose(margin=0.5)
    other.choose(margin=0.5)
    assert it.choices.failed.tolist() == [[False, True, False]]
    assert not other.choices.failed.any()
    for s, c in it.nodes:
        assert s == 1 or it.chosen(s, c) == other.chosen(s, c)
    text = np.ones((3, 4), np.int64)
    assert it.sampler.first(0, it.logits[row : row + 1], text, 1) == FAILED_TOKEN


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(1.0, top_p=0.9)])
def test_no_place_in_a_float32_row_hides_a_nan(params: SamplingParams) -> None:
    sampler, text = Sampler(1), np.ones((1, 4), np.int64)
    sampler.admit(0, Request(0, 0, [1], 9, 0.0, sampling=params))
    clean = torch.randn(1, 1003, generator=torch.Generator().manual_seed(0))
    assert sampler.first(0, clean, text, 1) != FAILED_TOKEN
    for place in (*range(40), 500, *range(960, 1003)):  # any lane of a vector, and what is left
        logits = clean.clone()
        logits[0, place] = float("nan")
        assert sampler.first(0, logits, text, 1) == FAILED_TOKEN


def test_a_forbidden_token_is_no_failure() -> None:
    sampler = Sampler(1)
    logits = torch.tensor([[0.0, -float("inf"), 1.0]])
    for top_k, top_p, min_p in ((0, 1.0, 0.0), (3, 0.9, 0.0), (0, 0.9, 0.1), (3, 1.0, 0.0)):
        params = SamplingParams(1.0, top_k, top_p, min_p)
        sampler.admit(0, Request(0, 0, [1], 9, 0.0, sampling=params))
        assert sampler.first(0, logits, np.ones((1, 4), np.int64), 1) in (0, 2)


@given(cases())
def test_log_probabilities_are_those_of_the_emitted_tokens(case: Case) -> None:
    params = [replace(random_params(case.rng), logprobs=True) for _ in range(case.limits.slots)]
    it = random_pass(case, params)
    margin = np.full((1, case.limits.slots), 0.3)
    it.choose(margin=0.3)
    walk(it.slots.decoding, it.choices, margin, it.slots, it.trees)
    logs = it.logits.log_softmax(-1)
    for s in np.flatnonzero(it.slots.decoding[0]).tolist():
        path = it.trees.path[0, s, : it.trees.path_length[0, s]].tolist()
        tokens = it.trees.new_tokens[0, s, : it.trees.accepted_length[0, s]].tolist()
        nodes = [-1, *path][: len(tokens)]
        wanted = [
            float(logs[it.nodes.index((s, n)), t]) for n, t in zip(nodes, tokens, strict=True)
        ]
        assert emitted_logprobs(s, it.trees, it.choices) == pytest.approx(wanted)
