"""What controllers see of the drafter: its entropy, and its divergence from the target.

The live engine works both out while it serves, replay looks them up: they must agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.divergence import divergence_nats, entropy_nats
from engine.drafters.roots import Roots
from engine.kernels.entropy import write_entropies
from engine.loop import Engine
from engine.protocol import Controller, Limits, Outcome, Plan, View
from engine.replay.recorder import ANY_CLASS
from engine.request import Request
from engine.tiny import tiny_server
from policies.tiered import Tiered
from tests.random_plans import RandomPlans
from tests.tiny_recording import asked, live_server, recorded, replay_server
from tests.twins.entropy import entropy as twin

Seen = dict[tuple[int, int], tuple[float, float]]
ROUNDING = 2**-10  # of a float16, twice over: the live engine's float32 may round the other way


class Watching(Controller):
    """Random trees, none among them, and what was seen of the drafter, by request and place."""

    def __init__(self, asks: bool = True) -> None:
        self.inner, self.needs_divergence = RandomPlans(np.random.default_rng(3)), asks
        self.entropy: Seen = {}
        self.divergence: Seen = {}
        self.told: list[bool] = []

    def reset(self, limits: Limits) -> None:
        self.inner.reset(limits)

    def plan(self, view: View) -> Plan:
        entropy = view.draft_entropy
        assert entropy is not None
        for slot in np.flatnonzero(view.active):
            seen = float(entropy[slot]), float(view.draft_confidence[slot])
            self.entropy[int(view.request[slot]), int(view.tokens_out[slot])] = seen
        self.view = view
        return self.inner.plan(view)

    def observe(self, outcome: Outcome) -> None:
        divergence = outcome.divergence
        self.told.append(divergence is not None)
        if divergence is None:
            return
        for slot in np.flatnonzero(outcome.ran):
            at = int(self.view.request[slot]), int(self.view.tokens_out[slot])
            self.divergence[at] = float(divergence[slot]), float(outcome.drafted[slot])


def watched(make: Callable[[list[Request]], Engine]) -> Watching:
    controller = Watching()
    make(list(asked())).serve(controller)
    return controller


@cache
def live() -> Watching:
    return watched(live_server().engine)


def alike(a: Seen, b: Seen) -> bool:
    """The same requests and places, and numbers that differ by no more than float16 does."""
    if list(a) != list(b):
        return False
    return np.allclose(list(a.values()), list(b.values()), rtol=ROUNDING, atol=1e-6, equal_nan=True)


def test_replay_tells_what_the_live_engine_does() -> None:
    replayed, served = watched(replay_server().engine), live()
    assert alike(replayed.entropy, served.entropy)
    assert alike(replayed.divergence, served.divergence)
    for nats, confidence in served.entropy.values():
        assert (nats == 0.0) == (confidence == 0.0)  # never drafted, and only then
    for nats, drafted in served.divergence.values():
        assert math.isnan(nats) == (drafted == 0)
    at_hand = [nats for nats, _ in served.divergence.values() if not math.isnan(nats)]
    assert len(at_hand) > 50 and np.std(at_hand) > 0.05 and min(at_hand) >= 0
    assert len(at_hand) < len(served.divergence) and sum(n == 0 for n, _ in served.entropy.values())


def test_another_places_numbers_are_noticed() -> None:
    server = replay_server()
    book = server.book
    server.book = book._replace(
        entropy=np.roll(book.entropy, 1), divergence=np.roll(book.divergence, 1)
    )
    replayed = watched(server.engine)
    assert not alike(replayed.entropy, live().entropy)
    assert not alike(replayed.divergence, live().divergence)


@pytest.mark.parametrize("make", [lambda: live_server().engine, lambda: replay_server().engine])
def test_who_does_not_ask_is_told_no_divergence(make: Callable[[], Callable[..., Engine]]) -> None:
    for asks in (True, False, True):
        controller = Watching(asks)
        make()(list(asked(2, tokens=6))).serve(controller)
        assert controller.told and set(controller.told) == {asks}
        assert any(nats > 0 for nats, _ in controller.entropy.values())
        assert any(nats > 0 for nats, _ in controller.divergence.values()) == asks
    assert not Controller.needs_divergence


def test_a_wrapper_asks_as_the_wrapped_controller_does() -> None:
    assert Tiered(Watching()).needs_divergence and not Tiered(Watching(asks=False)).needs_divergence


def test_a_draft_model_tells_both_and_prompt_lookup_neither() -> None:
    known = {}
    for drafter in ("model", "prompt-lookup"):
        server, controller = tiny_server(drafter=drafter, vocab=24), Watching()
        requests = [Request(i, 0, list(range(3 + i, 20 + i)) * 2, 20, 0.0) for i in range(3)]
        server.engine(requests, ANY_CLASS).serve(controller)
        drafted = [nats for nats, count in controller.divergence.values() if count]
        entropy = [nats for nats, sure in controller.entropy.values() if sure]
        assert drafted and entropy
        known[drafter] = np.isfinite(drafted).tolist() + np.isfinite(entropy).tolist()
    assert all(known["model"]) and not any(known["prompt-lookup"])


def test_a_drafter_misses_the_target_by_less_where_its_best_guess_is_right() -> None:
    _, recording = recorded()
    assert recording.divergence.dtype == np.float16 and (recording.divergence >= 0).all()
    first = recording.first_node[:-1]
    text = np.concatenate(
        [np.arange(recording.first_token[i] + recording.prompt_tokens[i] + 1, end)
         for i, end in enumerate(recording.first_token[1:])]
    )  # fmt: skip
    hit = recording.token[first] == recording.tokens[text]
    divergence = recording.divergence.astype(float)
    assert divergence[hit].mean() < 0.7 * divergence[~hit].mean()


# -- the numbers themselves ------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 60), st.integers(0, 999), st.sampled_from([0, 1, 30]))
def test_entropies_as_their_twin(rows: int, vocab: int, seed: int, scale: int) -> None:
    rng = np.random.default_rng(seed)
    logits = (scale * rng.standard_normal((rows, vocab))).astype(np.float32)
    slots, entropy = rng.permutation(rows + 2)[:rows], np.full(rows + 2, -7.0)
    write_entropies(logits, slots, entropy)
    wanted = [twin(row) for row in logits.tolist()]
    assert entropy[slots] == pytest.approx(wanted, rel=1e-5, abs=1e-5)
    assert (entropy[slots] >= 0).all() and (np.delete(entropy, slots) == -7.0).all()
    assert entropy_nats(torch.from_numpy(logits).double()).tolist() == pytest.approx(wanted)


def test_divergence_over_the_tokens_that_the_drafter_knows() -> None:
    # The target says (1/2, 1/4, 1/4); of tokens 2 and 0 alone that is (1/3, 2/3).
    target = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log()
    draft = torch.zeros(1, 2, dtype=torch.float64)  # (1/2, 1/2)
    by_hand = math.log(2 / 3) / 3 + 2 * math.log(4 / 3) / 3
    ids = torch.tensor([2, 0])
    assert divergence_nats(target, draft, ids).item() == pytest.approx(by_hand)
    assert divergence_nats(target, draft, ids.flip(0)).item() == pytest.approx(by_hand)
    # It is not symmetric: (2/3, 1/3) of the drafter from an even target is another number.
    turned = math.log(3 / 4) / 2 + math.log(3 / 2) / 2
    even, uneven = torch.zeros(1, 2).double(), torch.tensor([[2 / 3, 1 / 3]]).double().log()
    assert divergence_nats(even, uneven, None).item() == pytest.approx(turned) != by_hand
    assert divergence_nats(target, target + 3.0, None).item() == 0.0
    assert math.isnan(divergence_nats(target * math.nan, draft, ids).item())


def test_roots_are_compared_with_what_was_noted_for_them_and_then_forgotten() -> None:
    rng = np.random.default_rng(0)
    ids = torch.tensor([4, 1, 3])
    roots, entropy = Roots(4, ids), np.full(4, -7.0)
    said = torch.from_numpy(rng.standard_normal((2, 3)).astype(np.float32))
    target = torch.from_numpy(rng.standard_normal((5, 6)).astype(np.float32))
    roots.note(said, np.array([3, 1]), entropy)
    assert (entropy >= 0).tolist() == [False, True, False, True]
    rows, slots = np.array([0, 2, 4]), np.array([1, 2, 3])
    assert np.isnan(roots.divergence(target, rows, slots)).all()  # nobody wanted it to be kept
    roots.kept = True
    roots.note(said, np.array([3, 1]), entropy)
    found = roots.divergence(target, rows, slots)
    wanted = divergence_nats(target[[0, 4]], said.flip(0), ids).numpy()
    assert found[[1, 3]] == pytest.approx(wanted) and np.isnan(found[[0, 2]]).all()
    assert np.isnan(roots.divergence(target, rows, slots)).all()
