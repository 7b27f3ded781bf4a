"""Drafters that fail cost drafts and nothing else; drafters that get worse do so on schedule."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from engine.backends.protocol import Children, new_children
from engine.drafters.protocol import Drafter
from engine.drafters.scheduled import Fault, Scheduled
from engine.errors import UserError
from engine.kernels.beam import BeamState, new_beam
from engine.observability.metrics import ServingMetrics
from engine.observability.observing import serve_observed
from engine.protocol import Bools, Limits, Outcome
from engine.request import Request
from engine.serving import LiveServer
from engine.state import SlotState, TreeState, new_slots, new_trees
from engine.tiny import tiny_server
from tests.random_plans import Choice, ListedPlans
from tests.scripted_drafter import HandClock, ScriptedDrafter

VOCAB = 10
LIMITS = Limits(slots=2, max_depth=3, max_width=3, max_nodes=8)
CHAIN, ORDINARY = Choice(3, 1, 3, 6, 64, 2), Choice(0, 1, 0, 0, 64, 2)


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """The tiny networks on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tiny_server(0, VOCAB, limits=LIMITS, capacity_tokens=64)
    torch.set_num_threads(threads)


def requests_of(seed: int) -> list[Request]:
    """Two requests."""
    prompts = np.random.default_rng(seed).integers(0, VOCAB, (2, 6)).tolist()
    return [Request(i, 0, prompt, 24, 0.0) for i, prompt in enumerate(prompts)]


def serve(server: LiveServer, requests: list[Request], choice: Choice) -> list[Outcome]:
    """Serve to the end; what every iteration brought."""
    engine, controller = server.engine(requests), ListedPlans([choice])
    outcomes = []
    while (view := engine.next_decision()) is not None:
        outcomes.append(engine.run_iteration(view, controller))
    return outcomes


@pytest.fixture
def script(server: LiveServer) -> ScriptedDrafter:
    """A drafter that is always right about the requests of seed 0."""
    known = requests_of(0)
    serve(server, known, ORDINARY)
    texts = {r.id: [*r.prompt, *r.output] for r in known}
    return ScriptedDrafter(texts, VOCAB, np.random.default_rng(0), 1.0, likeliest=True)


# -- a drafter that raises -------------------------------------------------------------------------


class Failing(ScriptedDrafter):
    """Raises in the draft calls of these numbers, counted over both methods."""

    name = "failing"

    def __init__(self, script: ScriptedDrafter, calls: set[int], error: BaseException) -> None:
        super().__init__(script.texts, VOCAB, np.random.default_rng(0), 1.0, likeliest=True)
        self.calls, self.error, self.call = calls, error, -1

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        self._count()
        super().draft_first(drafting, slots, children)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        self._count()
        super().draft_next(step, slots, trees, beam, children)

    def _count(self) -> None:
        self.call += 1
        if self.call in self.calls:
            raise self.error


@pytest.fixture
def guarding(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> LiveServer:
    """The server, whose guard gets its drafter back after the test."""
    monkeypatch.setattr(server.guard, "drafter", server.guard.drafter)
    monkeypatch.setattr(server.guard, "failures", 0)
    return server


def test_a_failing_drafter_costs_one_iteration_each_time(
    guarding: LiveServer, script: ScriptedDrafter, caplog: pytest.LogCaptureFixture
) -> None:
    # The first iteration's second draft step fails, and the whole second iteration.
    guarding.guard.drafter = Failing(script, {1, 2}, ValueError("no such row"))
    requests = requests_of(0)
    with caplog.at_level(logging.WARNING):
        outcomes = serve(guarding, requests, CHAIN)
    assert [[*r.prompt, *r.output] for r in requests] == list(script.texts.values())
    assert guarding.guard.failures == 2
    drafted = [int(outcome.drafted.sum()) for outcome in outcomes]
    assert drafted[:2] == [0, 0] and min(drafted[2:-1]) > 0
    assert [o.accepted_length[o.ran].tolist() for o in outcomes[:2]] == [[1, 1], [1, 1]]
    assert outcomes[2].accepted_length.tolist() == [4, 4]
    (record,) = caplog.records
    assert record.exc_info is not None and "no such row" in str(record.exc_info[1])


def test_failures_are_counted_by_episode_and_told_as_fallbacks(
    guarding: LiveServer, script: ScriptedDrafter
) -> None:
    name = "draftgym:fallbacks_total"
    metrics = ServingMetrics()
    for calls, so_far in (({1, 2}, 2), ({0}, 3), (set(), 3)):
        guarding.guard.drafter = Failing(script, calls, ValueError("no such row"))
        engine = guarding.engine(requests_of(0))
        serve_observed(engine, ListedPlans([CHAIN]), [metrics])
        assert engine.counters["draft_failures"] == len(calls)
        assert f'{name}{{reason="drafter_failed"}} {so_far}\n' in metrics.text()
        assert f'{name}{{reason="no_profile"}} 0\n' in metrics.text()
    engine = guarding.engine(requests_of(0))
    pricing = ListedPlans([CHAIN])
    pricing.needs_profile = True
    serve_observed(engine, pricing, [metrics])
    decisions = engine.counters["iterations"]
    assert f'{name}{{reason="no_profile"}} {decisions}\n' in metrics.text()
    assert f'{name}{{reason="drafter_failed"}} 3\n' in metrics.text()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_an_interrupt_is_no_failure(
    guarding: LiveServer, script: ScriptedDrafter, error: BaseException
) -> None:
    guarding.guard.drafter = Failing(script, {0}, error)
    with pytest.raises(type(error)):
        serve(guarding, requests_of(0), CHAIN)
    assert guarding.guard.failures == 0


# -- a drafter on a schedule -----------------------------------------------------------------------


class Steady(Drafter):
    """Always proposes the same tokens, in half a second."""

    name = "steady"

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        self.clock.advance(0.5)
        children.token[:] = np.arange(LIMITS.max_width)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        self.draft_first(np.ones((1, LIMITS.slots), np.bool_), slots, children)


def drafted_tokens(
    schedule: list[Fault], iterations: int, seed: int = 0, by_clock: bool = False
) -> tuple[list[float], list[np.ndarray]]:
    """Seconds and first children of iterations with two draft steps each."""
    clock = HandClock()
    drafter = Scheduled(
        Steady(clock),
        schedule,
        VOCAB,
        np.random.default_rng(seed),
        now=clock if by_clock else None,
        wait=clock.advance,
        clock=clock,
    )
    slots, trees, beam = new_slots(1, LIMITS, 8), new_trees(1, LIMITS), new_beam(1, LIMITS)
    children = new_children(1, LIMITS)
    spent_s, tokens = [], []
    for _ in range(iterations):
        begun = clock()
        drafter.draft_first(np.ones((1, LIMITS.slots), np.bool_), slots, children)
        tokens.append(children.token[0].copy())
        drafter.draft_next(1, slots, trees, beam, children)
        spent_s.append(clock() - begun)
    return spent_s, tokens


def test_a_slow_spell_comes_and_goes() -> None:
    spells = [Fault(1, 3, slowdown=3.0), Fault(4, slowdown=2.0)]
    assert drafted_tokens(spells, 6)[0] == [1.0, 3.0, 3.0, 1.0, 2.0, 2.0]
    # On a clock: the spell begins at 1.5 s, in the second iteration's second step.
    spent_s, _ = drafted_tokens([Fault(1.6, 2.4, slowdown=3.0)], 4, by_clock=True)
    assert spent_s == [1.0, 2.0, 1.0, 1.0]


def test_a_bad_spell_changes_its_share_of_nodes() -> None:
    spell = [Fault(1, 41, degraded=0.4)]
    _, tokens = drafted_tokens(spell, 60)
    right = np.arange(LIMITS.max_width)
    shares = [float((row != right).mean()) for row in tokens]
    assert shares[0] == 0 and not any(shares[41:])
    assert np.mean(shares[1:41]) == pytest.approx(0.4, abs=0.1)
    siblings = np.sort(np.stack(tokens), axis=-1)
    assert (np.diff(siblings, axis=-1) > 0).all()
    assert siblings.min() >= 0 and siblings.max() < VOCAB
    again = drafted_tokens(spell, 60)[1]
    np.testing.assert_array_equal(tokens, again)
    assert not np.array_equal(tokens, drafted_tokens(spell, 60, seed=1)[1])


def test_a_bad_spell_lowers_acceptance_and_not_the_text(
    guarding: LiveServer, script: ScriptedDrafter
) -> None:
    rng = np.random.default_rng(0)
    guarding.guard.drafter = Scheduled(script, [Fault(2, 4, degraded=1.0)], VOCAB, rng)
    requests = requests_of(0)
    outcomes = serve(guarding, requests, CHAIN)
    assert [[*r.prompt, *r.output] for r in requests] == list(script.texts.values())
    lengths = [float(o.accepted_length[o.ran].mean()) for o in outcomes[:6]]
    assert min(lengths[:2] + lengths[4:]) == 4
    assert lengths[2:4] == [1, 1]
    assert guarding.guard.failures == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"begin": 2, "end": 2}, "must end later"),
        ({"begin": 0, "slowdown": 0.5}, "slowdown is 0.5"),
        ({"begin": 0, "degraded": 1.5}, "degraded is 1.5"),
        ({"begin": 0, "degraded": float("nan")}, "degraded is nan"),
    ],
)
def test_impossible_disturbances_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Fault(**wrong)
