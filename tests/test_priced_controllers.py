"""Whole episodes under the controllers of goodput, cost and bandits, and plans at any limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.limits import clip_plan
from engine.protocol import Limits
from policies import registry
from tests.controller_episodes import Episode, depths, serve
from tests.priced_views import priced_view
from tests.test_adaptivespec import outcome_of
from tests.tiny_recording import known_profile, live_server, recorded

SPECS = (
    "turbospec(interval=3, rate=0.9, favour=0.5, probe=4)",
    "adaptive-verification(steps=5, refit=4, warm_up=1, least=2)",
    "smart",
    "smart(discount=1.0, depth=4, width=3)",
    "sequoia(probe=6)",
    "sequoia(acceptance=(0.7, 0.2), width=2)",
    "bandit-ucb(arms=(0, 2, (3, 2, 8)))",
    "nightjar(longest=3)",
)


@pytest.fixture(autouse=True)
def profile_on_live(request: pytest.FixtureRequest) -> Iterator[None]:
    """The known profile stands for the live server's while it is wanted here."""
    server = live_server()
    before = server.profile
    server.profile = dataclasses.replace(known_profile(recorded()[0]), identity=server.identity)
    yield
    server.profile = before


@cache
def ordinary(backend: str) -> Episode:
    return serve(backend, registry.make("autoregressive"))


@pytest.mark.parametrize("backend", ["live", "replay"])
@pytest.mark.parametrize("spec", SPECS)
def test_episodes(backend: str, spec: str) -> None:
    controller = registry.make(spec)
    episode = serve(backend, controller)
    assert controller.lossless and episode.texts == ordinary(backend).texts
    counters = episode.counters
    assert counters["clipped"] == counters["shrunk"] == counters["unpriced"] == 0
    assert counters["let_through"] == 0 and counters["drafted"] > 0
    assert len(depths(episode)) > 1
    if backend == "replay":  # the bandits go by times, which no two live runs share
        # Again, also with what the controller brings along from the last episode.
        assert serve(backend, controller).course == episode.course
        assert serve(backend, registry.make(spec)).course == episode.course


def test_another_parameter_is_another_course() -> None:
    """So that the comparisons above can fail."""
    for spec, other in zip(SPECS[2::2], SPECS[3::2], strict=True):
        assert (
            serve("replay", registry.make(spec)).course
            != serve("replay", registry.make(other)).course
        )


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([*SPECS, "turbospec", "adaptive-verification", "sequoia", "bandit-ucb"]),
    st.integers(0, 2**32 - 1),
    st.builds(Limits, st.integers(1, 6), st.integers(1, 8), st.integers(1, 8), st.integers(1, 64)),
)
def test_plans_keep_to_any_limits(spec: str, seed: int, limits: Limits) -> None:
    rng, controller = np.random.default_rng(seed), registry.make(spec)
    controller.reset(limits)
    for _ in range(12):
        requests = int(rng.integers(0, limits.slots + 1))
        verified = np.cumsum(rng.random(2 + 2 * limits.slots * (limits.max_nodes + 2)))
        view = priced_view(requests, verified, limits)
        plan = controller.plan(view)
        clipped, count = clip_plan(plan, limits, view.active, view.remaining_tokens)
        assert count == 0 and (plan.depth[0] == 0) == (plan.nodes[0] == 0)
        depth = np.where(view.active, clipped.depth, 0)
        outcome = outcome_of(depth, rng.integers(0, depth + 1), limits)
        within = rng.integers(1, 3, (limits.slots, limits.max_depth + 1, 7))
        controller.observe(outcome._replace(accepted_within=within, verify_s=1.0, ran=view.active))


@pytest.mark.parametrize("spec", SPECS)
def test_names_can_be_typed_again(spec: str) -> None:
    assert registry.make(spec).name == spec
    assert registry.make(spec.partition("(")[0]).name == spec.partition("(")[0]
