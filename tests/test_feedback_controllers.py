"""Episodes under AdaptiveSpec, SpecDec++'s stop and DSDE, and what they plan at the limits."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.limits import clip_plan
from engine.protocol import Ints, Limits
from policies import registry
from policies.adaptivespec import AdaptiveSpec
from policies.dsde import Dsde
from policies.per_request import PerRequest
from tests.controller_episodes import Episode, depths, serve
from tests.test_adaptivespec import outcome_of
from tests.test_features import make_view

LOSSLESS = (
    "adaptivespec-tree",
    "adaptivespec-tree(depth=(0, 8), warm_up=2, probe=3)",
    "adaptivespec(margin=1.0)",
    "specdec-stop",
    "specdec-stop(threshold=0.97)",
    "dsde",
    "dsde(calibration=6, capped=False)",
)
LOSSY = ("adaptivespec(margin=0.2)", "adaptivespec-margin(margin=0.2)")
ON_LIVE = (LOSSLESS[1], LOSSLESS[4], LOSSLESS[6], LOSSY[0])  # one of each file, and a margin


@cache
def ordinary(backend: str) -> Episode:
    return serve(backend, registry.make("autoregressive"))


@pytest.mark.parametrize(
    ("backend", "spec"),
    [*(("live", spec) for spec in ON_LIVE), *(("replay", spec) for spec in (*LOSSLESS, *LOSSY))],
)
def test_episodes(backend: str, spec: str) -> None:
    controller = registry.make(spec)
    episode = serve(backend, controller)
    assert controller.lossless == (spec in LOSSLESS)
    assert (episode.texts == ordinary(backend).texts) == controller.lossless
    assert (episode.counters["let_through"] == 0) == controller.lossless
    assert episode.counters["clipped"] == 0
    assert len(depths(episode)) > 1 and episode.counters["drafted"] > 0
    if isinstance(controller, (AdaptiveSpec, Dsde)):
        assert len(controller.requests) == 0  # all have finished
    # Again, with what the controller brings along from the last episode.
    assert serve(backend, controller).course == episode.course


def test_another_parameter_is_another_course() -> None:
    """So that the comparisons above can fail."""
    for spec, other in (
        ("adaptivespec-tree", "adaptivespec-tree(weight=1.0)"),
        ("specdec-stop", "specdec-stop(threshold=0.97)"),
        ("dsde", "dsde(first=2)"),
    ):
        assert (
            serve("replay", registry.make(spec)).course
            != serve("replay", registry.make(other)).course
        )


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([*LOSSLESS, *LOSSY]),
    st.integers(0, 2**32 - 1),
    st.builds(Limits, st.integers(1, 6), st.integers(1, 8), st.integers(1, 8), st.integers(1, 64)),
)
def test_plans_keep_to_any_limits(spec: str, seed: int, limits: Limits) -> None:
    rng, controller = np.random.default_rng(seed), registry.make(spec)
    controller.reset(limits)
    for _ in range(6):
        view = make_view(rng, limits=limits)._replace(
            request=rng.permutation(9)[: limits.slots], active=rng.random(limits.slots) < 0.8
        )
        plan = controller.plan(view)
        clipped, count = clip_plan(plan, limits, view.active, np.full(limits.slots, 99))
        assert count == 0
        depth = np.where(view.active, clipped.depth, 0)
        accepted = rng.integers(0, depth + 1)
        nats = np.where(rng.random(limits.slots) < 0.7, rng.exponential(1, limits.slots), np.nan)
        controller.observe(outcome_of(depth, accepted, limits, divergence=nats))


@pytest.mark.parametrize(
    "spec",
    [
        "adaptivespec",
        "adaptivespec(margin=0.7, depth=(2, 6))",
        "adaptivespec-tree(weight=0.25)",
        "adaptivespec-margin(static=(4, 4, 16))",
        "specdec-stop(threshold=0.5, longest=8)",
        "dsde(stretch=0.5, decay=0.9)",
    ],
)
def test_names_can_be_typed_again(spec: str) -> None:
    assert registry.make(spec).name == spec


class Rows(NamedTuple):
    """A memory of one number."""

    value: Ints


def test_memories_follow_requests_from_slot_to_slot_and_end_with_them() -> None:
    limits = Limits(slots=3)
    view = make_view(np.random.default_rng(0), limits=limits)
    requests = PerRequest(Rows(np.zeros(5, np.int64)))  # of another size than the first view

    def recall(active: list[bool], ids: list[int]) -> Ints:
        seen = view._replace(active=np.array(active), request=np.array(ids))
        return requests.recall(seen, (0,)).value

    first = recall([True, True, False], [7, 8, 9])
    assert requests.here().tolist() == [True, True, False] and first[:2].tolist() == [0, 0]
    first[0] = 1
    again = recall([False, True, True], [9, 8, 7])  # 7 was preempted and came back
    assert again[1:].tolist() == [0, 1]
    again[1] = 2
    assert recall([False, True, True], [9, 7, 8])[1:].tolist() == [1, 2]  # they changed places
    finished = np.array([False, True, False])
    outcome = outcome_of(np.zeros(3, int), np.zeros(3, int), limits)._replace(finished=finished)
    requests.forget(outcome)
    assert len(requests) == 1 and requests.here().tolist() == [False, False, True]
    requests.forget(outcome)  # the slot is nobody's now
    assert len(requests) == 1
    assert recall([True, False, False], [7, 0, 0])[0] == 0


def test_who_never_comes_back_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policies.per_request.PATIENCE", 5)
    requests = PerRequest(Rows(np.zeros(2, np.int64)))
    view = make_view(np.random.default_rng(0), limits=Limits(slots=2))
    view = view._replace(active=np.array([True, True]), request=np.array([1, 2]))
    requests.recall(view, (0,))
    for _ in range(5):  # 1 was cancelled
        assert len(requests) == 2
        requests.recall(view._replace(active=np.array([False, True])), (0,))
    requests.recall(view._replace(active=np.array([False, True])), (0,))
    assert len(requests) == 1 and requests.here().tolist() == [False, True]
    for _ in range(9):  # nor is anybody kept where nobody decodes
        requests.recall(view._replace(active=np.array([False, False])), (0,))
    assert len(requests) == 0
