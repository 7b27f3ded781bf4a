"""Text equals ordinary decoding's whatever the plan; what breaks that rule must be noticed here.

The reference runs the tiny decoder over the whole text anew for every token: no engine, no cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import engine.backends.live as live
from engine.backends.protocol import Choices
from engine.classes import DEFAULT_CLASSES
from engine.drafters.protocol import Drafter
from engine.kernels.layout import lay_out_trees
from engine.loop import Engine, EngineSettings
from engine.protocol import Bools, Controller, Floats, Limits
from engine.request import Request, Status
from engine.serving import LiveServer
from engine.state import SlotState, TreeState
from engine.tiny import tiny_decoder, tiny_server
from models.kv_cache import TokenBatch
from tests.random_plans import Choice, ListedPlans, RandomMasks, RandomPlans
from tests.scripted_drafter import ScriptedDrafter

VOCAB = 10
LIMITS = Limits(slots=3, max_depth=4, max_width=3, max_nodes=10)
PROMPT_LENGTHS = (1, 2, 3, 7, 12, 19, 33)
ANSWER_TOKENS = 20
DECODER = tiny_decoder(0, VOCAB)
Wrap = Callable[[LiveServer, pytest.MonkeyPatch], None]


def next_token(text: Sequence[int]) -> int:
    """The decoder's greedy token after `text`, from one plain pass over all of it."""
    n = len(text)
    rows = torch.arange(n)
    mask = torch.ones(1, n, n, dtype=torch.bool).tril()
    batch = TokenBatch(torch.tensor(text), rows, torch.zeros_like(rows), rows, rows, mask, 0, 1)
    hidden, _ = DECODER.forward(batch, DECODER.new_cache(1, n))
    return int(DECODER.logits(hidden[-1:]).argmax())


@cache
def case(number: int) -> tuple[list[int], list[int]]:
    """One of the prompts, and what ordinary decoding answers."""
    rng = np.random.default_rng(number)
    prompt = rng.integers(0, VOCAB, PROMPT_LENGTHS[number % len(PROMPT_LENGTHS)]).tolist()
    text = list(prompt)
    with torch.inference_mode():
        for _ in range(ANSWER_TOKENS):
            text.append(next_token(text))
    return prompt, text[len(prompt) :]


def expected(answer: list[int], max_tokens: int, stops: frozenset[int]) -> list[int]:
    """The answer, cut at the limit or behind the first stop token."""
    for i, token in enumerate(answer[:max_tokens]):
        if token in stops:
            return answer[: i + 1]
    return answer[:max_tokens]


def draw_requests(rng: np.random.Generator, count: int = 3) -> list[Request]:
    """Requests over the known prompts; every other one has stop tokens."""
    requests = []
    for i in range(count):
        prompt, _ = case(int(rng.integers(14)))
        stops = rng.integers(0, VOCAB, int(rng.integers(0, 5)) if i % 2 else 0).tolist()
        limit = int(rng.integers(1, ANSWER_TOKENS + 1))
        requests.append(Request(i, i % 3, prompt, limit, 0.001 * i, frozenset(stops)))
    return requests


def differences(requests: list[Request]) -> int:
    """How many requests were answered otherwise than by ordinary decoding."""
    answers = {tuple(prompt): answer for prompt, answer in map(case, range(14))}
    return sum(
        r.output != expected(answers[tuple(r.prompt)], r.max_tokens, r.stop_ids) for r in requests
    )


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """The tiny networks in float64, on one thread: for them more threads only cost time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_server(0, VOCAB, limits=LIMITS, capacity_tokens=80)
    torch.set_num_threads(threads)


def with_script(
    server: LiveServer,
    rng: np.random.Generator,
    requests: list[Request],
    hit_rate: float = 0.9,
) -> None:
    """Replace the head by a drafter that often proposes what the target will say."""
    answers = {tuple(prompt): answer for prompt, answer in map(case, range(14))}
    texts = {r.id: r.prompt + answers[tuple(r.prompt)] for r in requests}
    server.backend.drafter = ScriptedDrafter(texts, VOCAB, rng, hit_rate)


def run(
    server: LiveServer, controller: Controller, requests: list[Request], prefill_tokens: int = 16
) -> Engine:
    """Serve all requests."""
    settings_ = EngineSettings(LIMITS, 80, prefill_tokens)
    engine = server.engine(requests, DEFAULT_CLASSES, settings_)
    records = engine.serve(controller)
    assert sorted(r.id for r in records) == [r.id for r in requests]
    assert all(r.status is Status.FINISHED for r in records)
    return engine


@pytest.fixture
def own_head(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Drafter:
    """The server's own drafter, put back after a test that replaced it."""
    monkeypatch.setattr(server.backend, "drafter", server.backend.drafter)
    return server.backend.drafter


@pytest.mark.parametrize("kind", [RandomPlans, RandomMasks])
@pytest.mark.parametrize("scripted", [False, True], ids=["head", "script"])
def test_random_plans_do_not_change_the_text(
    server: LiveServer, own_head: Drafter, kind: type[RandomPlans], scripted: bool
) -> None:
    lengths = []
    for seed in range(8):  # two thousand schedules: `benchmarks.engine`
        rng = np.random.default_rng([seed, scripted])
        requests = draw_requests(rng)
        if scripted:
            with_script(server, rng, requests)
        counters = run(server, kind(rng), requests, int(rng.integers(1, 40))).counters
        assert differences(requests) == 0, f"seed {seed}"
        lengths.append(counters["emitted"] / max(counters["request_iterations"], 1))
        assert counters["let_through"] == 0
    # Drafts were accepted, or equal text would show nothing.
    assert max(lengths) > (1.3 if scripted else 1.1)
    assert np.mean(lengths) > (1.12 if scripted else 1.02)


def choices_of(limits: Limits) -> st.SearchStrategy[Choice]:
    """Plans inside and a little outside the limits, by slot."""

    def some(low: int, high: int) -> st.SearchStrategy[list[int]]:
        return st.lists(st.integers(low, high), min_size=1, max_size=limits.slots)

    return st.builds(
        Choice,
        depth=some(0, limits.max_depth + 1),
        width=some(1, limits.max_width + 1),
        nodes=some(0, limits.max_nodes + 1),
        node_budget=st.integers(0, limits.slots * limits.max_nodes),
        prefill_tokens=st.integers(1, 40),
        max_running=st.integers(1, limits.slots),
    )


@settings(max_examples=15)
@given(st.lists(choices_of(LIMITS), min_size=1, max_size=5), st.integers(0, 999))
def test_no_plan_changes_the_text(server: LiveServer, plans: list[Choice], seed: int) -> None:
    requests = draw_requests(np.random.default_rng(seed))
    head = server.backend.drafter
    try:
        with_script(server, np.random.default_rng(seed), requests)
        run(server, ListedPlans(plans), requests)
    finally:
        server.backend.drafter = head
    assert differences(requests) == 0


def test_deep_trees_are_accepted_deeply(server: LiveServer, own_head: Drafter) -> None:
    rng = np.random.default_rng(3)
    requests = draw_requests(rng)
    with_script(server, rng, requests)
    plan = Choice(4, 3, 10, 30, 64, 3)
    counters = run(server, ListedPlans([plan]), requests).counters
    assert counters["emitted"] / counters["request_iterations"] > 2
    assert differences(requests) == 0


# -- negative controls: each of these breaks one thing, and the text must show it ----------------


def changed_answers(server: LiveServer) -> int:
    """Answers that differ from ordinary decoding's over a few episodes."""
    changed = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        requests = draw_requests(rng)
        with_script(server, rng, requests)
        run(server, RandomPlans(rng), requests)
        changed += differences(requests)
    return changed


def test_a_margin_changes_the_text(server: LiveServer, own_head: Drafter) -> None:
    plan = Choice(4, 3, 10, 30, 64, 3)
    for margin, harmless in ((1.0, True), (0.5, False)):
        changed = through = 0
        for seed in range(8):
            rng = np.random.default_rng(seed)
            requests = draw_requests(rng)
            with_script(server, rng, requests, hit_rate=0.3)
            served = run(server, ListedPlans([plan], margin), requests)
            through += served.counters["let_through"]
            changed += differences(requests)
        assert (changed == 0) == harmless
        assert (through == 0) == harmless


def accept_the_likeliest(server: LiveServer, patch: pytest.MonkeyPatch) -> None:
    """A verifier that says whatever the drafter's first kept child says."""
    verify = server.backend.verify

    def agreeing(
        decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        verify(decoding, margin, slots, trees, choices)
        for slot in np.flatnonzero(decoding[0]).tolist():
            for node in np.flatnonzero(trees.kept[0, slot])[::-1].tolist():
                parent = trees.parent[0, slot, node]
                token = trees.token[0, slot, node]
                if parent < 0:
                    choices.root_token[0, slot] = token
                else:
                    choices.node_token[0, slot, parent] = token

    patch.setattr(server.backend, "verify", agreeing)


def shift_positions(server: LiveServer, patch: pytest.MonkeyPatch) -> None:
    """Every node stands one position too far to the right."""

    def shifted(*arguments: np.ndarray) -> int:
        n = lay_out_trees(*arguments)
        flat = arguments[7]
        flat[1, :n] += flat[5, :n] >= 0
        return n

    patch.setattr(live, "lay_out_trees", shifted)


def see_siblings(server: LiveServer, patch: pytest.MonkeyPatch) -> None:
    """A node sees every node before it, as if the tree were a chain."""

    def chained(*arguments: np.ndarray) -> int:
        n = lay_out_trees(*arguments)
        flat, mask = arguments[7:9]
        for slot, row, offset in flat[2:5, :n].T.tolist():
            mask[slot, offset, : row + 1] = True
        return n

    patch.setattr(live, "lay_out_trees", chained)


def forget_moves(server: LiveServer, patch: pytest.MonkeyPatch) -> None:
    """Accepted keys and values stay where they were written."""
    patch.setattr(server.backend, "commit", lambda *_: None)


@pytest.mark.parametrize(
    "broken", [accept_the_likeliest, shift_positions, see_siblings, forget_moves]
)
def test_what_breaks_verification_changes_the_text(
    server: LiveServer, own_head: Drafter, monkeypatch: pytest.MonkeyPatch, broken: Wrap
) -> None:
    assert changed_answers(server) == 0
    broken(server, monkeypatch)
    assert changed_answers(server) > 0
