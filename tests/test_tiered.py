"""`tiered`: which sizes it rounds to, by hand and on random plans; and whole episodes under it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from engine.backends.live import LiveBackend
from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from engine.limits import clip_plan
from engine.loop import Engine, EngineSettings
from engine.protocol import Candidates, Controller, Floats, Limits, Plan, View, uniform_plan
from engine.request import Request
from engine.sampling.params import GREEDY
from engine.tiny import tiny_decoder, tiny_head
from models.flashinfer_attention import FlashInferAttention
from models.graph_interpreter import TapeCapturer
from models.graph_tiers import GraphTiers
from models.graphed import GraphedDecoder, GraphedHead
from models.pass_graphs import GraphPool
from policies import registry
from policies.tiered import Tiered, round_plan, round_selection, tiered
from tests.ordinary_answers import ordinary_answers
from tests.random_plans import RandomMasks, RandomPlans
from tests.test_features import make_view

TIERS = (1, 2, 4, 8, 16, 32, 64, 128)


def view_of(roots: int, tiers: tuple[int, ...] | None = TIERS, **changes: Any) -> View:
    """A view with so many decoding requests that are far from their ends."""
    view = make_view(np.random.default_rng(0))
    slots = view.limits.slots
    return view._replace(
        active=np.arange(slots) < roots,
        remaining_tokens=np.full(slots, 100),
        tiers=tiers,
        pricing=None,
        **changes,
    )


def verified(plan: Plan, view: View) -> int:
    """Tokens of the verification, were every beam as full as it can be."""
    plan, _ = clip_plan(plan, view.limits, view.active, view.remaining_tokens)
    drafted = plan.width + (plan.depth - 1) * plan.width**2
    nodes = np.where(view.active & (plan.depth > 0), np.minimum(plan.nodes, drafted), 0)
    return int(view.active.sum()) + min(int(nodes.sum()), max(plan.node_budget, 0))


@pytest.mark.parametrize(
    ("roots", "depth", "width", "nodes", "tokens"),
    [
        (1, 6, 1, 6, 4),  # 7 tokens: down
        (1, 3, 1, 3, 4),  # on a tier
        (1, 6, 8, 32, 32),  # 33: down
        (2, 1, 1, 1, 4),  # on a tier
        (3, 1, 1, 1, 4),  # 6 down to 4: one node for three requests
        (5, 1, 1, 1, 8),  # 10 down to 8
        (4, 3, 2, 1, 8),  # on a tier
        (3, 0, 1, 1, 3),  # no speculation: left alone
        (7, 4, 1, 4, 32),  # 35 down to 32
    ],
)
def test_plans_are_rounded_down(
    roots: int, depth: int, width: int, nodes: int, tokens: int
) -> None:
    view = view_of(roots)
    rounded = round_plan(uniform_plan(view.limits, depth, width, nodes), view)
    assert verified(rounded, view) == tokens


def test_a_batch_that_speculates_goes_on() -> None:
    """Four roots and three nodes: the tier of four would leave none, so it is eight."""
    view = view_of(4)
    plan = uniform_plan(view.limits, 3, 2, 1)
    plan.nodes[3] = 0
    rounded = round_plan(plan, view)
    assert verified(rounded, view) == 8
    assert rounded.nodes[:4].tolist() == [2, 1, 1, 0]  # in turn, and not to who does not speculate


def test_what_roots_alone_would_be_padded_to_is_free() -> None:
    view = view_of(5)
    plan = uniform_plan(view.limits, 1, 1, 1)
    plan.nodes[1:] = 0
    assert verified(plan, view) == 6
    assert verified(round_plan(plan, view), view) == 6  # chains of one draft no more than that
    plan = uniform_plan(view.limits, 2, 3, 1)._replace(nodes=plan.nodes)
    assert verified(round_plan(plan, view), view) == 8


class Priced:
    """A verification that costs nothing more up to a size, and its tokens from there on."""

    def __init__(self, flat: int) -> None:
        self.flat = flat

    def step_s(self, plan: Plan) -> float:
        """Not asked for."""
        raise NotImplementedError

    def verify_s(self, tokens: ArrayLike) -> Floats:
        """Seconds."""
        return np.maximum(np.asarray(tokens, float), self.flat)

    def node_budget(self, multiple: float) -> int:
        """One node whatever is asked."""
        return 1


def test_up_where_the_profile_says_that_it_costs_nothing() -> None:
    plan = uniform_plan(view_of(1).limits, 6, 8, 21)  # 22 tokens
    for flat, tokens in ((1, 16), (16, 16), (31, 16), (32, 32), (64, 32)):
        view = view_of(1)._replace(pricing=Priced(flat))
        assert verified(round_plan(plan, view), view) == tokens


def test_a_budget_in_steps_is_taken_before_rounding() -> None:
    view = view_of(2)._replace(pricing=Priced(1))
    plan = uniform_plan(view.limits, 3, 2, 4)._replace(budget_steps=1.5)
    rounded = round_plan(plan, view)
    assert rounded.budget_steps is None and rounded.node_budget == 2


def test_without_tiers_or_beyond_them_all_is_left_as_it_is() -> None:
    plan = uniform_plan(view_of(3).limits, 3, 2, 5)
    candidates = Candidates(*(np.zeros((16, 4), np.int64) for _ in range(5)))  # type: ignore[arg-type]
    mask = np.ones((16, 4), np.bool_)
    for view in (view_of(3, None), view_of(3, (1, 2)), view_of(3, ())):
        assert round_plan(plan, view) is plan
    assert round_selection(mask, view_of(3, None), candidates) is mask


@given(
    roots=st.integers(0, 16),
    tiers=st.sets(st.integers(1, 300), max_size=9).map(lambda t: tuple(sorted(t))),
    seed=st.integers(0, 2**32 - 1),
    flat=st.none() | st.integers(1, 300),
)
def test_any_plan_ends_on_a_tier_if_its_beams_can(
    roots: int, tiers: tuple[int, ...], seed: int, flat: int | None
) -> None:
    rng = np.random.default_rng(seed)
    view = view_of(roots, tiers)._replace(pricing=None if flat is None else Priced(flat))
    plan = RandomPlans(rng).plan(view)
    rounded = round_plan(plan, view)
    before, after = verified(plan, view), verified(rounded, view)
    assert (rounded.depth == plan.depth).all() and (rounded.width == plan.width).all()
    assert ((rounded.nodes >= plan.nodes) | ~view.active).all()
    if before == roots or not any(tier > roots for tier in tiers):
        assert rounded is plan
        return
    lower = max((t for t in tiers if roots < t <= before), default=None)
    upper = min((t for t in tiers if t > before), default=None)
    if lower is not None and (flat is None or lower == before):
        assert after == lower
    elif after not in (lower, upper):  # up, and the beams have no more nodes
        assert upper is not None and before <= after < upper


@given(seed=st.integers(0, 2**32 - 1), roots=st.integers(1, 16), share=st.floats(0, 1))
def test_selections_stay_trees_and_keep_the_likeliest(seed: int, roots: int, share: float) -> None:
    rng, view = np.random.default_rng(seed), view_of(roots)
    slots, most = view.limits.slots, 12
    parent = np.array(
        [[rng.integers(-1, i) if i else -1 for i in range(most)] for _ in range(slots)]
    )
    depth, probability = np.ones((slots, most), np.int64), np.ones((slots, most))
    for s, i in np.ndindex(slots, most):
        above = parent[s, i]
        depth[s, i] = 1 if above < 0 else depth[s, above] + 1
        probability[s, i] = rng.random() * (1.0 if above < 0 else probability[s, above])
    candidates = Candidates(rng.integers(0, most + 1, slots), parent, depth, depth, probability)
    asked = rng.random((slots, most)) < share
    view = view._replace(limits=view.limits._replace(max_depth=most))
    mask = round_selection(asked, view, candidates)
    above = np.where(parent < 0, True, np.take_along_axis(mask, np.maximum(parent, 0), 1))
    assert not (mask & ~above).any() and not (mask & ~asked).any() and not mask[roots:].any()
    whole = round_selection(asked, view._replace(tiers=(10**6,)), candidates)  # closed, not cut
    kept, total = int(mask.sum()), roots + int(whole.sum())
    lower = max(t for t in TIERS if t <= total)
    assert kept == (lower - roots if lower > roots else whole.sum())
    if kept < whole.sum():
        assert probability[mask].min() >= probability[whole & ~mask].max()


class Extending(Controller):
    """Overrides `extend` alone."""

    def extend(self, view: View, plan: Plan, step: int, candidates: Candidates) -> None:
        return None


@pytest.mark.parametrize(
    "inner", [Controller(), Extending(), RandomMasks(np.random.default_rng(0))]
)
def test_the_engine_sees_what_the_inner_controller_overrides(inner: Controller) -> None:
    """It reserves memory for who selects, and charges a wait to who extends."""
    wrapped = tiered(inner)
    for method in ("extend", "select"):
        ours, theirs = (
            getattr(type(c), method) is getattr(Controller, method) for c in (wrapped, inner)
        )
        assert ours == theirs
    assert (wrapped.lossless, wrapped.needs_profile) == (inner.lossless, inner.needs_profile)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("tiered:eagle3(3,4,8)", "tiered:eagle3(3,4,8)"),
        ("tiered:chain", "tiered:chain(4)"),
        ("tiered:tiered:chain(2)", "tiered:tiered:chain(2)"),
        ("tiered:tests.test_policies:Probe(gain=2.0)", "tiered:probe"),
    ],
)
def test_it_stands_before_any_controller(spec: str, name: str) -> None:
    controller = registry.make(spec)
    assert isinstance(controller, Tiered) and controller.name == name


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("tiered", "expected as in tiered:eagle3"),
        ("tiered:", "wraps another"),
        ("tiered:x", "no con"),
    ],
)
def test_it_stands_before_nothing_else(spec: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        registry.make(spec)


def test_episodes_on_graphs_verify_tiers_and_change_no_text() -> None:
    """The backend's tiers reach the controller, and full beams fill them without padding."""
    tiers = GraphTiers(requests=(1, 2, 4), tokens=(1, 2, 4, 8, 16, 32), tree_tokens=13)
    capturer = TapeCapturer()
    pool = GraphPool(capturer, 2**30)
    decoder = GraphedDecoder(tiny_decoder(), pool, tiers)
    head = GraphedHead(tiny_head(decoder), pool, tiers)
    for network in (decoder, head):
        network.attention = FlashInferAttention(capturer, torch.device("cpu"), workspace_bytes=16)
    limits = Limits(slots=3, max_depth=4, max_width=3, max_nodes=12)
    backend = LiveBackend(decoder, head, limits, 64, page_size=4)
    prompts = [(1, 2, 3), (9, 8), (4, 4, 4, 7, 20), (33,)]
    requests = [Request(i, 0, list(prompt), 9, 0.0) for i, prompt in enumerate(prompts)]
    engine = Engine(backend, requests, DEFAULT_CLASSES, EngineSettings(limits, 64), 1.0)
    controller = registry.make("tiered:eagle3(3, 3, 6)")
    sizes = []
    while (view := engine.next_decision()) is not None:
        assert view.tiers == tiers.tokens
        outcome = engine.run_iteration(view, controller)
        if (view.remaining_tokens[view.active] > 3).all():
            sizes.append(int(outcome.verified.sum()))
    assert len(sizes) > 2 and set(sizes) <= set(tiers.tokens)
    assert pool.replays > 20
    answers = ordinary_answers(tiny_decoder(), [(prompt, GREEDY) for prompt in prompts], 9)
    for prompt, request in zip(prompts, requests, strict=True):
        assert request.output == answers[prompt, GREEDY]
