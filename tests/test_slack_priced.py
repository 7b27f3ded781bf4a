"""Slack-priced: its optimizers against exhaustive search, its rule by hand, whole episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.errors import UserError
from engine.kernels.forecast import learn_layers, node_values
from engine.kernels.priced_select import priced_select
from engine.kernels.priced_sweep import sweep_shapes
from engine.protocol import Bools, Floats, Limits, Outcome, PriceTable, View
from policies import registry
from policies.forecast import Forecast
from policies.goodput_batch import GoodputBatch
from policies.slack_priced import SlackPriced
from tests.controller_episodes import serve
from tests.test_features import make_view
from tests.test_kernels_slo_select import flat, random_tree
from tests.twins.priced_search import best_selection, best_shapes
from tests.twins.slo_select import Tree

INF = float("inf")
MANY = 1000


# -- nodes to verify -----------------------------------------------------------------------------


def select(
    trees: list[Tree],
    weight: Floats,
    verify_s: Floats,
    sunk_s: float = 0.0,
    scale: Floats | None = None,
    verify_joules: Floats | None = None,
    joule_s: float = 0.0,
    cap_watts: float = INF,
    room: int = MANY,
    page: int = 1,
    free: int = MANY,
    most: int = MANY,
) -> Bools:
    """What the kernel keeps."""
    given = flat(trees)
    joules = np.zeros_like(verify_s) if verify_joules is None else verify_joules
    slots = np.ones(len(trees), np.int64)
    return priced_select(
        weight, float(weight.sum()), np.ones(3) if scale is None else scale, 0.0, sunk_s, 0.0,
        verify_s, joules, joule_s, cap_watts, most * slots, room * slots, page, free,
        given.size, given.depth, given.probability,
    )[0]  # fmt: skip


def stairs(rng: np.random.Generator, nodes: int) -> Floats:
    """Seconds of 0..nodes nodes: never falling, with steps."""
    return np.cumsum(np.concatenate(([1.0], rng.choice([0.0, 0.02, 0.1, 0.6], nodes))))


def ratio(
    trees: list[Tree], weight: Floats, verify_s: Floats, kept: Bools, scale: Floats, **power: Any
) -> tuple[float, Floats]:
    """Value over price of a selection, and tokens a second of each request."""
    seconds = power.get("sunk_s", 0.0) + verify_s[kept.sum()]
    tokens = np.array(
        [
            1 + sum(tree[i][2] * scale[tree[i][1] - 1] for i in np.flatnonzero(kept[s]).tolist())
            for s, tree in enumerate(trees)
        ]
    )
    joules = power["joules"][kept.sum()] if "joules" in power else 0.0
    price = seconds + power.get("joule_s", 0.0) * joules
    return float(weight @ tokens) / price, tokens / seconds


def test_no_selection_is_better_and_caps_are_kept() -> None:
    rng = np.random.default_rng(0)
    sizes, capped = set(), 0
    for _ in range(200):
        trees: list[Tree] = [random_tree(rng, 5) for _ in range(int(rng.integers(1, 4)))]
        weight = rng.choice([0.25, 1.0, 4.0], len(trees))
        nodes = sum(map(len, trees))
        verify_s, joules = stairs(rng, nodes), np.cumsum(rng.uniform(0, 1, nodes + 1))
        scale = np.minimum.accumulate(rng.uniform(0.5, 1.0, 3))
        sunk_s, joule_s = float(rng.uniform(0, 1)), float(rng.choice([0.0, 0.3]))
        cap = float(rng.choice([INF, 0.8, 1.5]))
        kept = select(trees, weight, verify_s, sunk_s, scale, joules, joule_s, cap)
        for s, i in np.argwhere(kept).tolist():
            assert i < len(trees[s]) and (trees[s][i][0] < 0 or kept[s, trees[s][i][0]])
        found, _ = ratio(
            trees, weight, verify_s, kept, scale, sunk_s=sunk_s, joules=joules, joule_s=joule_s
        )
        lists = [a.tolist() for a in (weight, scale, verify_s, joules)]
        best = best_selection(trees, lists[0], lists[1], sunk_s, lists[2], lists[3], joule_s, cap)
        assert found == pytest.approx(best, rel=1e-12)
        count = int(kept.sum())
        assert count == 0 or joules[count] <= cap * (sunk_s + verify_s[count])
        capped += cap < INF and joules[-1] > cap * (sunk_s + verify_s[-1])
        sizes.add(count)
    assert len(sizes) > 6 and capped > 25


def test_a_selection_by_hand() -> None:
    # Roots take 1 s, a node 0.2 s more. u = 2 and 1, so the roots are worth 3 a second.
    # 2 · 0.5 = 1: 4 / 1.2 = 3.33; then 2 · 0.4 = 0.8: 4.8 / 1.4 = 3.43; then 1 · 0.6: 5.4 / 1.6 =
    # 3.375, so the third node stays out although it is the likeliest.
    trees: list[Tree] = [[(-1, 1, 0.5), (0, 2, 0.4)], [(-1, 1, 0.6)]]
    weight = np.array([2.0, 1.0])
    verify_s: Floats = np.array([1.0, 1.2, 1.4, 1.6])
    assert np.argwhere(select(trees, weight, verify_s)).tolist() == [[0, 0], [0, 1]]
    # A second that drafting took is lost anyway, so all three are worth it: 5.4 / 2.6 = 2.08
    # against 4.8 / 2.4 = 2.
    assert select(trees, weight, verify_s, sunk_s=1.0).sum() == 3
    # At 10 J a node and 0.1 s a joule a node costs 1.2 s, and none is worth that.
    joules: Floats = np.array([0.0, 10.0, 20.0, 30.0])
    assert not select(trees, weight, verify_s, verify_joules=joules, joule_s=0.1).any()
    # 10 J in 1.2 s are 8.3 W, 20 J in 1.4 s are 14.3 W.
    assert select(trees, weight, verify_s, verify_joules=joules, cap_watts=9.0).sum() == 1
    # The first node alone draws 2.5 W; the second takes so long that both together draw 1.4.
    trees, slow = [[(-1, 1, 2 / 3), (0, 2, 2 / 3)]], np.array([1.0, 1.01, 1.81])
    joules = np.array([0.5, 2.5, 2.6])
    assert select(trees, np.array([3.0]), slow, verify_joules=joules, cap_watts=1.5).sum() == 2


def test_pages_and_limits_hold() -> None:
    trees: list[Tree] = [[(-1, 1, 0.9), (0, 2, 0.8), (1, 3, 0.7)] for _ in range(2)]
    weight, free = np.array([2.0, 1.0]), np.ones(7)
    assert select(trees, weight, free).sum() == 6
    assert select(trees, weight, free, most=2).sum(1).tolist() == [2, 2]
    # One row left in each one's page, pages of two rows, one free: the first may have it.
    assert select(trees, weight, free, room=1, page=2, free=1).sum(1).tolist() == [3, 1]
    assert select(trees, weight, free, room=0, page=4, free=0).sum() == 0


def test_less_slack_never_means_less() -> None:
    """A larger weight: never fewer tokens a second; nor nodes, where all nodes cost alike."""
    rng = np.random.default_rng(1)
    more = 0
    for _ in range(500):
        trees: list[Tree] = [random_tree(rng, 6) for _ in range(3)]
        weight, scale = rng.uniform(0.25, 4, 3), np.ones(3)
        heavier = weight * [float(rng.uniform(1, 6)), 1, 1]
        nodes = sum(map(len, trees))
        line: Floats = np.linspace(1.0, 1 + nodes * float(rng.uniform(0.02, 0.6)), nodes + 1)
        for verify_s in (line, stairs(rng, nodes)):
            before, after = (select(trees, u, verify_s) for u in (weight, heavier))
            rates = [ratio(trees, weight, verify_s, kept, scale)[1][0] for kept in (before, after)]
            assert rates[1] >= rates[0] - 1e-12
            if verify_s is line:
                assert not (before[0] & ~after[0]).any()
                more += after[0].sum() > before[0].sum()
    assert more > 60


# -- what to draft -------------------------------------------------------------------------------


def shapes(rng: np.random.Generator, each_costs: float) -> tuple[float, float, int]:
    """The sweep's ratio, that of exhaustive search, and its width on a random instance."""
    slots, layers, ranks = 3, 2, 2
    first = np.sort(rng.uniform(0.1, 1, (slots, layers)))[:, ::-1]
    value = np.stack([first, first * rng.uniform(0, 1, (slots, layers))], 2)
    value *= rng.choice([0.25, 1, 4], slots)[:, None, None]
    verify_s, widths = stairs(rng, slots * 4), np.array([1, 2])
    first_s = np.array([float(rng.uniform(0, 0.5)), each_costs * float(rng.uniform(0, 0.1))])
    steps = rng.uniform(0, 0.3, 2)[:, None] * (np.arange(slots + 1) > 0)
    next_s = np.sort(steps, 0) + each_costs * np.outer([0.02, 0.04], np.arange(slots + 1))
    rows = rng.integers(1, 5, slots).astype(float)
    base = float(rng.uniform(0.5, 6))
    found = sweep_shapes(
        value, base, widths, verify_s, np.zeros_like(verify_s), first_s, next_s, 0.0, rows,
        np.full(slots, MANY), 0.0, INF,
    )  # fmt: skip
    assert found[4].sum() == found[2] and ((found[3] > 0) == (found[4] > 0)).all()
    best = best_shapes(
        value.tolist(), base, widths.tolist(), verify_s.tolist(), (first_s[0], first_s[1]),
        next_s.tolist(), rows.tolist(),
    )  # fmt: skip
    assert ranks == value.shape[2]
    return float(found[0]), best, found[1]


def test_no_shapes_are_better_where_drafting_costs_by_the_step() -> None:
    rng = np.random.default_rng(2)
    widths = set()
    for _ in range(60):
        found, best, width = shapes(rng, 0.0)
        assert found == pytest.approx(best, rel=1e-12)
        widths.add(width)
    assert widths == {0, 1, 2}


def test_where_each_request_costs_too_the_sweep_is_close() -> None:
    rng = np.random.default_rng(3)
    short = np.array([1 - found / best for found, best, _ in (shapes(rng, 1.0) for _ in range(80))])
    assert short.min() > -1e-12 and short.mean() < 0.01 and short.max() < 0.12


# -- what nodes are worth ------------------------------------------------------------------------

LIMITS = Limits(slots=4, max_depth=3, max_width=2, max_nodes=8)


def view_of(**changes: Any) -> View:
    """Four requests, 20 tokens to go, on their objective of 50 ms a token."""
    values: dict[str, Any] = {
        "active": np.ones(4, np.bool_),
        "slo_class": np.zeros(4, np.int64),
        "tpot_objective_s": np.full(4, 0.05),
        "slack_tokens": np.zeros(4),
        "remaining_tokens": np.full(4, 20),
        "oldest_queued_s": np.zeros(3),
        "class_tpot_objective_s": np.array([0.05, 0.1, 0.5]),
    }
    return make_view(np.random.default_rng(0), limits=LIMITS, **{**values, **changes})


def test_weights_by_hand() -> None:
    # At 0.1 s a token and 20 to go: slack 0 allows 50 ms, pressure 2, u = 4. 20 tokens of slack
    # allow 0.1 s, u = 1. 60 allow 0.2 s: (1 / 2)² is the least of 0.25. 15 tokens late allow 12.5
    # ms: 8 is more than can be reached, and the objective is lost; so is it 30 late.
    view = view_of(slack_tokens=np.array([0.0, 20.0, 60.0, -15.0]))
    controller = SlackPriced(lax=0.25, lost=0.25)
    assert controller.weights(view, 0.1).tolist() == pytest.approx([4.0, 1.0, 0.25, 0.25])
    late = view._replace(
        slack_tokens=np.full(4, -30.0),
        tpot_objective_s=np.array([0.05, 0.05, INF, 0.05]),
        active=np.array([True, True, True, False]),
    )
    mild = SlackPriced(lax=0.25, lost=0.5)
    assert mild.weights(late, 0.1).tolist() == pytest.approx([0.5, 0.5, 0.25, 0.0])
    slack = np.linspace(60, -6, 4)  # while it can be met, u grows as slack shrinks
    assert (np.diff(controller.weights(view._replace(slack_tokens=slack), 0.1)) > 0).all()


def test_layers_are_learned_as_by_sorting() -> None:
    rng = np.random.default_rng(4)
    active, slo_class = np.array([True, True, False]), np.array([1, 0, 0])
    for _ in range(50):
        trees: list[Tree] = [random_tree(rng, 8) for _ in range(3)]
        given = flat(trees)
        seen, total = np.ones((2, 3, 2)), np.ones((2, 3, 2))
        learn_layers(
            active, slo_class, given.size, given.depth, given.probability, 0.5, seen, total
        )
        kept = 0.5 if trees[0] or trees[1] else 1.0
        for s, layer in np.ndindex(2, 3):
            chances = sorted(node[2] for node in trees[s] if node[1] == layer + 1)[::-1][:2]
            c = slo_class[s]
            counts = [float(i < len(chances)) for i in range(2)]
            assert (seen[c, layer] - kept).tolist() == counts
            assert total[c, layer] - kept == pytest.approx((chances + [0.0] * 2)[:2])


def test_values_of_nodes_by_hand() -> None:
    # One class, layers of 0.8 and 0.5 with siblings of 0.1. The first request is like its class
    # and weighs 2. The second accepts 1.5 times as often: 1.2 counts as 1, then 0.5 · 1.5². The
    # third has two tokens to go, so one layer; the fourth weighs nothing. 0.1 · 0.5 is too little.
    chance = np.array([[[0.8, 0.1], [0.5, 0.1]]])
    value = node_values(
        chance, np.zeros(4, np.int64), np.array([2.0, 1.0, 1.0, 0.0]),
        np.array([1.0, 1.5, 0.5, 1.0]), np.array([9, 9, 2, 9]), 0.06,
    )  # fmt: skip
    assert np.allclose(value[0], [[1.6, 0.2], [1.0, 0.2]])
    assert np.allclose(value[1], [[1.0, 0.15], [1.0, 0.225]])
    assert np.allclose(value[2], [[0.4, 0.0], [0.0, 0.0]]) and not value[3].any()


def test_forecasts_begin_with_the_prior_and_follow_what_is_seen() -> None:
    forecast = Forecast(2, 3, 2)
    # 0.6 of the layer above, and a quarter of the older sibling.
    expected = [[0.6, 0.15], [0.36, 0.09], [0.216, 0.054]]
    assert np.allclose(forecast.by_class(), [expected, expected])
    tree = flat([[(-1, 1, 0.9), (-1, 1, 0.05), (0, 2, 0.8), (0, 2, 0.1)]])
    for _ in range(60):
        forecast.learn_trees(np.ones(1, np.bool_), np.zeros(1, np.int64), tree)
    seen, other = forecast.by_class()
    assert np.allclose(seen[:2], [[0.9, 0.05], [0.8, 0.1]], atol=0.04)
    # Of the third layer nothing was seen: 0.6 of the one above. The other class knows nothing
    # itself, and is like the first.
    assert seen[2, 0] == pytest.approx(0.6 * seen[1, 0], rel=0.05)
    assert np.allclose(other, seen, atol=0.05)
    # Half of what was expected is accepted, in the first layer: what lies behind is no better.
    for _ in range(200):
        forecast.learn_acceptance(np.array([2.0, 0, 0]), np.array([[True, False, False]]))
    assert forecast.scale == pytest.approx([0.58] * 3, abs=0.02)


def table_of(**changes: Any) -> PriceTable:
    """Prices by hand."""
    values: dict[str, Any] = dict(
        verify_s=1 + 0.1 * np.arange(9),
        verify_joules=np.zeros(9),
        draft_first_s=np.array([0.1, 0.0]),
        draft_next_s=np.full((2, 5), 0.1),
        draft_watts=0.0,
        undrafted_tokens=np.ones(4, np.int64),
        ordinary_s=np.array([0.0, 0.04, 0.05, 0.09, 0.2]),
        prefill_s=np.array([1.0, 1.5, 2.5, 5.0, 10.0, 20.0]),
    )
    return PriceTable(**{**values, **changes})


def test_the_batch_by_hand() -> None:
    # Without prompts, all classes alike, objectives of 50, 100 and 500 ms: 1 brings 25 tokens a
    # second, nearly all in time; 2 bring 40 of which the first class's half are; 3 bring 33, two
    # classes' in time; 4 bring 20, one class's.
    batch, view = GoodputBatch(3, 600.0), view_of(active=np.zeros(4, np.bool_))
    assert batch.size(view, table_of()) == 2
    # Half of the wait opens half of the slots, all of it all of them.
    old = view._replace(oldest_queued_s=np.array([0.0, 450 * view.unloaded_tpot_s, 0.0]))
    assert batch.size(old, table_of()) == 3
    older = view._replace(oldest_queued_s=np.array([0.0, 600 * view.unloaded_tpot_s, 0.0]))
    assert batch.size(older, table_of()) == 4
    # All that comes is of the tightest class: one at a time.
    for first in range(0, 400, 4):
        only = view_of(request=np.arange(first, first + 4), remaining_tokens=np.full(4, 20))
        wanted = batch.size(only, table_of())
    assert wanted == 1


def test_prompts_are_read_as_those_who_decode_can_afford() -> None:
    class Prices:
        """Only the table is asked for."""

        def table(self, nodes: int, widths: Any) -> PriceTable:
            """By hand: four emit 20 tokens a second, of which half may be spoken for."""
            return table_of(prefill_s=np.array([0.2, 0.4, 0.8, 1.6, 3.2, 6.4]))

    controller = SlackPriced()
    controller.reset(LIMITS)
    plan = controller.plan(view_of(pricing=Prices(), tpot_objective_s=np.full(4, 0.08)))
    # They need 50 and read little. At 1.6 s a token they need 2.5, a quarter of the 10 that may be
    # spoken for: three steps of 0.2 s, in which 48 tokens are read.
    assert plan.prefill_tokens == 16
    rich = view_of(pricing=Prices(), tpot_objective_s=np.full(4, 1.6))
    assert controller.plan(rich).prefill_tokens == 48 and plan.max_running is None
    plain = SlackPriced(chunks=False).plan(view_of(pricing=Prices()))
    assert plain.prefill_tokens is None and plain.max_running is None


# -- whole episodes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", ["slack-priced", "slack-priced(lost=0.5, joule_s=0.001, wait=9.0)"]
)
def test_text_and_course_of_tiny_episodes(spec: str) -> None:
    ordinary = serve("replay", registry.make("autoregressive"))
    first, again = (serve("replay", registry.make(spec)) for _ in range(2))
    assert first.texts == ordinary.texts and first.course == again.course
    assert first.counters["drafted"] > 0 and first.counters["clipped"] == 0
    assert first.counters["unpriced"] == 0
    # The floor: who decodes gets a token in every iteration, late or not.
    assert all((o.accepted_length[o.ran] >= 1).all() for o in first.outcomes)


def test_an_episode_has_not_more_watts_than_the_cap() -> None:
    """Steps of the known profile draw 10 W for one token, 42 W for 65: a cap keeps trees small."""

    def most_nodes(cap_watts: float) -> int:
        from tests import tiny_recording

        engine = tiny_recording.replay_server().engine(tiny_recording.asked(5, tokens=24))
        controller = SlackPriced()
        controller.reset(tiny_recording.LIMITS)
        outcomes: list[Outcome] = []
        while (view := engine.next_decision()) is not None:
            outcomes.append(
                engine.run_iteration(view._replace(power_cap_watts=cap_watts), controller)
            )
        return max(int((o.verified.sum()) - o.ran.sum()) for o in outcomes)

    assert most_nodes(INF) > most_nodes(11.0) >= 0
    assert most_nodes(1.0) == 0


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("slack-priced(power=-1)", "power is -1; expected a number of at least 0"),
        ("slack-priced(lost=0)", "lost is 0; expected a number above 0"),
        ("slack-priced(wait=-1)", "wait is -1"),
    ],
)
def test_bad_parameters_are_told(spec: str, says: str) -> None:
    with pytest.raises(UserError, match="expected") as caught:
        registry.make(spec)
    assert says in str(caught.value)


def test_the_name_can_be_typed_again_and_a_profile_is_needed() -> None:
    spec = "slack-priced(power=1.0, chunks=False)"
    controller = registry.make(spec)
    assert controller.name == spec and controller.lossless and controller.needs_profile
    with pytest.raises(UserError, match="needs a hardware profile"):
        SlackPriced().plan(view_of(pricing=None))
