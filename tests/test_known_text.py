"""Forced text and steered drafts: the kernels against their twins, then on the live backend.

Forced text comes out whatever the target says, what is accepted follows from the trees, and a run
that is forced to a live run's own text is that run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.forced import Forced
from engine.backends.live import LiveBackend
from engine.backends.protocol import FAILED_TOKEN, Backend, Choices, new_children, new_choices
from engine.classes import DEFAULT_CLASSES
from engine.drafters.steered import Steered
from engine.errors import UserError
from engine.kernels.beam import grow, new_beam
from engine.kernels.known_text import OFF_PATH, force_choices, steer_children
from engine.known_texts import KnownTexts
from engine.loop import Engine, EngineSettings
from engine.protocol import Bools, Controller, Floats, Limits, Outcome
from engine.request import Request, Status
from engine.sampling.params import SamplingParams
from engine.serving import LiveServer
from engine.state import SlotState, TreeState, new_slots, new_trees
from policies.registry import make
from tests.known_costs import small_server
from tests.random_plans import RandomMasks, RandomPlans
from tests.random_trees import TOKENS, Case, cases, copied, keep_some, random_slots, random_trees
from tests.twins.force_choices import force_choices as force_twin
from tests.twins.steer_children import on_path as on_path_twin
from tests.twins.steer_children import put

VOCAB = 16
LIMITS = Limits(slots=3, max_depth=4, max_width=3, max_nodes=8)
CAPACITY = 112
ANSWER_TOKENS = 30


def random_texts(rng: np.random.Generator, slots: SlotState) -> KnownTexts:
    """Texts of most requests, some of which end within or before the tree."""
    texts: dict[int, list[int]] = {}
    slots.request[:] = rng.permutation(1000)[: slots.request.size].reshape(slots.request.shape)
    for r, s in np.ndindex(*slots.request.shape):
        if rng.random() < 0.8:
            length = int(slots.context[r, s] + rng.integers(0, 8))
            texts[int(slots.request[r, s])] = rng.integers(0, TOKENS, length).tolist()
    return KnownTexts(texts)


# -- kernels ---------------------------------------------------------------------------------------


@given(cases())
def test_forced_choices_equal_their_twin(case: Case) -> None:
    rng = case.rng
    trees, slots = random_trees(case), random_slots(case)
    keep_some(case, trees, slots.decoding)
    choices = new_choices(case.replicas, case.limits)
    for field in (choices.root_token, choices.node_token):
        field[:] = rng.integers(0, TOKENS, field.shape)
    choices.log_ratio[:] = rng.normal(size=choices.log_ratio.shape)
    texts, before = random_texts(rng, slots), copied(choices)
    rows = texts.rows(slots.request)
    force_choices(slots.decoding, rows, texts.tokens, texts.length, slots, trees, choices)
    for r, s in np.ndindex(*rows.shape):
        row = int(rows[r, s])
        if row < 0 or not slots.decoding[r, s]:
            for got, was in zip(choices, before, strict=True):
                np.testing.assert_array_equal(got[r, s], was[r, s])
            continue
        kept = np.flatnonzero(trees.kept[r, s]).tolist()
        root, nodes = force_twin(
            texts.tokens[row, : texts.length[row]].tolist(),
            int(slots.context[r, s]),
            trees.depth[r, s].tolist(),
            kept,
            int(before.root_token[r, s]),
            dict(enumerate(before.node_token[r, s].tolist())),
        )
        assert choices.root_token[r, s] == root
        assert {i: int(choices.node_token[r, s, i]) for i in kept} == nodes
        assert (choices.log_ratio[r, s, kept] == -np.inf).all()


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_steered_children_equal_their_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    limits = Limits(slots=2, max_depth=4, max_width=3, max_nodes=8)
    shape = (2, limits.slots)
    trees, beam, slots = new_trees(2, limits), new_beam(2, limits), new_slots(2, limits, 40)
    slots.context[:] = rng.integers(1, 20, shape)
    texts, on_path = random_texts(rng, slots), np.full(shape, OFF_PATH)
    rows, width = texts.rows(slots.request), rng.integers(1, 4, shape)
    alive = np.ones(shape, np.bool_)
    for depth in range(1, limits.max_depth + 1):
        children = new_children(2, limits)
        for index in np.ndindex(children.token.shape[:3]):
            count = int(rng.integers(0, limits.max_width + 1))
            children.token[index] = rng.permutation(TOKENS)[: limits.max_width]
            children.probability[index][:count] = -np.sort(-rng.uniform(0.1, 1.0, count))
        before, rank = copied(children), rng.integers(-1, limits.max_width, shape)
        drafting = alive & (rng.random(shape) < 0.9)
        steer_children(
            depth, drafting, rank, rows, texts.tokens, texts.length, TOKENS, slots, trees, beam,
            on_path, *children,
        )  # fmt: skip
        np.testing.assert_array_equal(children.probability, before.probability)
        for r, s in np.ndindex(*shape):
            for place in range(1 if depth == 1 else int(beam.size[r, s])):
                was = before.token[r, s, place].tolist()
                chain = _chain(trees, r, s, int(beam.candidate[r, s, place])) if depth > 1 else []
                row = int(rows[r, s])
                text = texts.tokens[row, : texts.length[row]].tolist() if row >= 0 else []
                at = int(slots.context[r, s]) + depth
                known = drafting[r, s] and at < len(text)
                if known and on_path_twin(text, at - depth, chain):
                    count = int((before.probability[r, s, place] > 0).sum())
                    after = put(text[at], int(rank[r, s]), TOKENS, was[:count])
                    was[:count] = after
                    assert len(set(after)) == len(after)
                assert children.token[r, s, place].tolist() == was
        alive = drafting
        grow(depth, alive, width, *children, trees, beam)


def _chain(trees: TreeState, r: int, s: int, node: int) -> list[int]:
    """Tokens from below the root down to a node."""
    tokens: list[int] = []
    while node >= 0:
        tokens.insert(0, int(trees.token[r, s, node]))
        node = int(trees.parent[r, s, node])
    return tokens


# -- forced text on the live backend ---------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> LiveServer:
    """Networks of one and two layers."""
    return small_server(LIMITS)


def engine_on(backend: Backend, requests: Sequence[Request], capacity: int = CAPACITY) -> Engine:
    """An episode on any backend."""
    settings = EngineSettings(LIMITS, capacity, prefill_tokens=7)
    return Engine(backend, requests, DEFAULT_CLASSES, settings, 0.01)


def draw(seed: int, count: int = 5) -> tuple[list[Request], list[list[int]]]:
    """Requests, and answers that no network had a part in."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, VOCAB, rng.integers(2, 9)).tolist() for _ in range(count)]
    requests = [Request(7 * i, 0, prompt, ANSWER_TOKENS, 0.0) for i, prompt in enumerate(prompts)]
    return requests, [rng.integers(0, VOCAB, ANSWER_TOKENS).tolist() for _ in requests]


def outcomes(engine: Engine, controller: Controller) -> Iterator[Outcome]:
    """Serve to the end; the records are closed."""
    controller.reset(engine.limits)
    while (view := engine.next_decision()) is not None:
        yield engine.run_iteration(view, controller)
    engine.close_records()


@pytest.mark.parametrize("controller", [RandomPlans, RandomMasks])
def test_forced_text_comes_out_whatever_the_target_says(
    server: LiveServer, controller: type[RandomPlans]
) -> None:
    requests, answers = draw(0)
    assert len({request.id for request in requests}) == len(requests)
    engine = engine_on(Forced(server.backend, KnownTexts.of(requests, answers)), requests)
    for _ in outcomes(engine, controller(np.random.default_rng(1))):
        pass
    assert [list(request.output) for request in requests] == answers
    plain, _ = draw(0)
    engine_on(server.backend, plain).serve(make("autoregressive"))
    assert [list(request.output) for request in plain] != answers  # negative control


def test_what_is_accepted_follows_from_the_tree(server: LiveServer) -> None:
    requests, answers = draw(2, count=3)
    texts = KnownTexts.of(requests, answers)
    steered = Steered(server.drafter, [[0.6, 0.2]], VOCAB, LIMITS, np.random.default_rng(0), texts)
    backend = Forced(_with_drafter(server, steered), texts)
    engine, accepted = engine_on(backend, requests), 0
    controller = make("eagle3(4, 3, 8)")
    controller.reset(LIMITS)
    while (view := engine.next_decision()) is not None:
        contexts, emitted = view.context_tokens.copy(), view.remaining_tokens.copy()
        outcome = engine.run_iteration(view, controller)
        for slot in np.flatnonzero(outcome.ran).tolist():
            row = int(texts.rows(view.request[slot : slot + 1])[0])
            text = texts.tokens[row, : texts.length[row]].tolist()
            trees, at = engine.trees, int(contexts[slot])
            longest = max(
                (
                    int(trees.depth[0, slot, i])
                    for i in np.flatnonzero(trees.kept[0, slot]).tolist()
                    if on_path_twin(text, at, _chain(trees, 0, slot, i))
                ),
                default=0,
            )
            assert outcome.accepted_length[slot] == min(longest + 1, int(emitted[slot]))
            accepted += longest
    assert accepted > 20


def test_forced_to_a_runs_own_text_it_is_that_run_again(server: LiveServer) -> None:
    def run(backend: Backend, requests: list[Request]) -> list[Outcome]:
        return list(outcomes(engine_on(backend, requests), RandomPlans(np.random.default_rng(4))))

    live_requests, _ = draw(3)
    live = run(server.backend, live_requests)
    requests, others = draw(3)
    own = KnownTexts.of(requests, [list(request.output) for request in live_requests])
    assert _same(live, run(Forced(server.backend, own), requests))
    again, _ = draw(3)  # negative control: another text, another run
    assert not _same(live, run(Forced(server.backend, KnownTexts.of(again, others)), again))


def _same(one: list[Outcome], other: list[Outcome]) -> bool:
    names = ("ran", "accepted_length", "drafted", "verified", "proposed", "accepted")
    return len(one) == len(other) and all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(one, other, strict=True)
        for name in (*names, "accepted_within")
    )


def test_a_request_that_gave_its_slot_up_goes_on_in_its_text(server: LiveServer) -> None:
    requests, answers = draw(5)
    backend = LiveBackend(server.decoder, server.head, LIMITS, 64, 4, 64)
    engine = engine_on(Forced(backend, KnownTexts.of(requests, answers)), requests, 64)
    for _ in outcomes(engine, RandomPlans(np.random.default_rng(0))):
        pass
    assert engine.counters["preempted"] > 0
    assert [list(request.output) for request in requests] == answers


def test_who_has_no_text_or_has_ended_it_is_left_to_the_target(server: LiveServer) -> None:
    plain, answers = draw(6, count=3)
    engine_on(server.backend, plain).serve(make("chain(2)"))
    requests, _ = draw(6, count=3)
    half = [*requests[1].prompt, *answers[1][:9]]
    texts = KnownTexts({requests[1].id: half})
    engine_on(Forced(server.backend, texts), requests).serve(make("chain(2)"))
    assert [list(requests[i].output) for i in (0, 2)] == [list(plain[i].output) for i in (0, 2)]
    assert list(requests[1].output[:9]) == answers[1][:9]
    assert len(requests[1].output) == ANSWER_TOKENS
    # Behind its text the target goes on from it, as from a prompt.
    on = [Request(0, 0, half, ANSWER_TOKENS - 9, 0.0)]
    engine_on(server.backend, on).serve(make("autoregressive"))
    assert list(requests[1].output[9:]) == list(on[0].output)


def test_a_margin_lets_nothing_else_through(server: LiveServer) -> None:
    requests, answers = draw(7)
    engine = engine_on(Forced(server.backend, KnownTexts.of(requests, answers)), requests)
    loose = RandomPlans(np.random.default_rng(1), margin=1e-9)
    assert sum(int(o.let_through.sum()) for o in outcomes(engine, loose)) == 0
    assert [list(request.output) for request in requests] == answers


class Failing(Forced):
    """Its second request's logits are not finite, in the prompt or in verification."""

    def __init__(self, inner: Backend, texts: KnownTexts, in_prompt: bool) -> None:
        super().__init__(Numbers(inner, in_prompt), texts)


class Numbers(Forced):
    """A backend without texts whose request 7 gives no numbers."""

    def __init__(self, inner: Backend, in_prompt: bool) -> None:
        super().__init__(inner)
        self.in_prompt = in_prompt

    def prefill(self, slot: int, slots: SlotState, end: int) -> int:
        token = super().prefill(slot, slots, end)
        return FAILED_TOKEN if self.in_prompt and slots.request[0, slot] == 7 else token

    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        super().verify(decoding, margin, slots, trees, choices)
        choices.failed[0] |= decoding[0] & (slots.request[0] == 7)


@pytest.mark.parametrize("in_prompt", [True, False])
def test_numbers_that_are_none_still_fail_the_request(server: LiveServer, in_prompt: bool) -> None:
    requests, answers = draw(8, count=3)
    backend = Failing(server.backend, KnownTexts.of(requests, answers), in_prompt)
    records = engine_on(backend, requests).serve(make("chain(2)"))
    assert {r.id: r.status for r in records if r.status is not Status.FINISHED} == {
        7: Status.FAILED
    }


def test_log_probabilities_of_a_forced_text_are_refused(server: LiveServer) -> None:
    requests, answers = draw(9, count=1)
    requests[0].sampling = SamplingParams(logprobs=True)
    backend = Forced(server.backend, KnownTexts.of(requests, answers))
    with pytest.raises(UserError, match="request 0 asks for log probabilities, but its text is f"):
        engine_on(backend, requests).serve(make("chain(2)"))
    with pytest.raises(UserError, match="2 answers were given for 1 requests"):
        KnownTexts.of(requests, [[1], [2]])


def test_what_the_engine_asks_besides_is_the_inner_backends(server: LiveServer) -> None:
    backend = Forced(server.backend)
    assert backend.pool is server.backend.pool and backend.vocab_size == VOCAB
    other = replace(server.settings, limits=Limits(slots=9))
    with pytest.raises(UserError, match="but its backend was made for"):
        Engine(backend, [], DEFAULT_CLASSES, other, 0.01)


# -- steered drafts --------------------------------------------------------------------------------


def _with_drafter(server: LiveServer, drafter: Steered) -> LiveBackend:
    return LiveBackend(server.decoder, None, LIMITS, CAPACITY, drafter=drafter)


def shares(server: LiveServer, chances: list[list[float]], controller: str, seed: int) -> Floats:
    """Accepted over offered, by position, where all before was accepted; [D]."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, VOCAB, 4).tolist() for _ in range(6)]
    requests = [Request(i, 0, prompt, 70, 0.0) for i, prompt in enumerate(prompts)]
    texts = KnownTexts.of(requests, rng.integers(0, VOCAB, (6, 70)).tolist())
    steered = Steered(server.drafter, chances, VOCAB, LIMITS, rng, texts)
    engine = engine_on(Forced(_with_drafter(server, steered), texts), requests)
    lengths: list[int] = []
    for outcome in outcomes(engine, make(controller)):
        whole = outcome.ran & ~outcome.finished
        lengths += (outcome.accepted_length[whole] - 1).tolist()
    got = np.array(lengths)
    depth = got.max(initial=0) + 1
    return np.array([(got > p).sum() / max((got >= p).sum(), 1) for p in range(depth)])


def test_acceptance_is_what_the_table_says(server: LiveServer) -> None:
    found = shares(server, [[0.8], [0.5], [0.3]], "chain(3)", 0)
    assert found[0] == pytest.approx(0.8, abs=0.1)
    assert found[1] == pytest.approx(0.5, abs=0.15)
    assert shares(server, [[1.0]], "chain(3)", 1)[:3].tolist() == [1.0, 1.0, 1.0]
    assert shares(server, [[0.0]], "eagle3(3, 3, 8)", 2).tolist() == [0.0]


def test_a_wider_beam_gains_what_the_next_rank_has(server: LiveServer) -> None:
    table = [[0.4, 0.4]]
    narrow = shares(server, table, "eagle3(1, 1, 1)", 3)[0]
    wide = shares(server, table, "eagle3(1, 2, 2)", 3)[0]
    assert narrow == pytest.approx(0.4, abs=0.1) and wide == pytest.approx(0.8, abs=0.1)


def test_the_same_seed_steers_alike(server: LiveServer) -> None:
    one, again, other = (
        shares(server, [[0.6, 0.2]], "chain(2)", seed).tolist() for seed in (5, 5, 6)
    )
    assert one == again != other


@pytest.mark.parametrize("table", [[], [[]], [[0.5], [0.9, 0.2]], [[-0.1]], [[float("nan")]]])
def test_tables_that_are_no_probabilities_are_refused(
    server: LiveServer, table: list[list[float]]
) -> None:
    with pytest.raises(UserError, match=r"steered drafter: .*; expected"):
        Steered(server.drafter, table, VOCAB, LIMITS, np.random.default_rng(0))
