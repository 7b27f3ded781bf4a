"""Controllers by name, fixed trees, and the action table."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UserError
from engine.protocol import Controller
from policies import registry
from policies.actions import SHARES, ActionTable, PlanByClass, sized_tiers
from tests.test_features import make_view

ROOT = Path(__file__).resolve().parents[1]
CLASSES = ("coding", "chat", "summarization")


class Probe(Controller):
    """A controller that a test names as module:Class."""

    name = "probe"

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain


@pytest.mark.parametrize(
    ("spec", "params", "name", "tree"),
    [
        ("autoregressive", {}, "autoregressive", (0, 1, 1)),
        ("chain", {}, "chain(4)", (4, 1, 4)),
        ("chain(6)", {}, "chain(6)", (6, 1, 6)),
        ("chain", {"k": 2}, "chain(2)", (2, 1, 2)),
        ("eagle3", {}, "eagle3(6,8,32)", (6, 8, 32)),
        ("eagle3(5, 4, 8)", {}, "eagle3(5,4,8)", (5, 4, 8)),
        ("eagle3(depth=3)", {"nodes": 9}, "eagle3(3,8,9)", (3, 8, 9)),
    ],
)
def test_names_and_calls(spec: str, params: dict, name: str, tree: tuple) -> None:
    controller = registry.make(spec, **params)
    plan = controller.plan(make_view(np.random.default_rng(0)))
    assert controller.name == name and controller.lossless
    assert all((plan.depth == tree[0]) & (plan.width == tree[1]) & (plan.nodes == tree[2]))
    assert all(plan.margin == 1)
    # The name that a table shows can be typed again.
    assert registry.make(controller.name).name == name


def test_plans_are_fresh() -> None:
    controller, view = registry.make("chain"), make_view(np.random.default_rng(0))
    controller.plan(view).depth[:] = 99
    assert controller.plan(view).depth.max() == 4


def test_class_by_path() -> None:
    probe = registry.make("tests.test_policies:Probe(gain=2.5)")
    assert isinstance(probe, Controller) and probe.gain == 2.5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("autoregresive", "did you mean autoregressive?"),
        ("zzz", "no controller of that name; known are ada"),
        ("chain(0)", "at least 1"),
        ("chain(4, 5)", "parameters do not fit"),
        ("chain(depth=4)", "parameters do not fit"),
        ("chain(2.5)", "whole number"),
        ("chain(__import__('os'))", "cannot be read"),
        ("chain(4", "cannot be read"),
        ("chain(4)(5)", "cannot be read"),
        ("eagle3(4,0,8)", "width is 0"),
        ("no_such_module:Thing", "no module"),
        ("tests.test_policies:Nothing", "no controller class"),
        ("tests.test_policies:Path", "no controller class"),
        ("policies", "holds no manifest.json"),
    ],
)
def test_bad_specs(spec: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError) as caught:
        registry.make(spec)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_listing_names_imports_no_controller() -> None:
    code = (
        "import sys, policies.registry as r; assert r.names()\n"
        "assert not {'torch', 'numba', 'safetensors', 'policies.fixed'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


TABLES = st.builds(
    ActionTable,
    class_names=st.lists(st.sampled_from("abcdef"), min_size=1, unique=True).map(tuple),
    depths=st.sets(st.integers(1, 8)).map(lambda d: (0, *sorted(d))),
    widths=st.sets(st.integers(1, 8), min_size=1).map(lambda w: tuple(sorted(w))),
    nodes=st.sets(st.integers(1, 64), min_size=1).map(lambda n: tuple(sorted(n))),
    margins=st.sets(st.floats(0.1, 0.99)).map(lambda m: (1.0, *sorted(m, reverse=True))),
    running=st.sets(st.floats(0.01, 0.99)).map(lambda s: (*sorted(s), 1.0)),
)


@given(TABLES, st.integers(0, 2**32 - 1))
def test_encode_inverts_decode(table: ActionTable, seed: int) -> None:
    action = np.random.default_rng(seed).integers(0, table.nvec)
    assert (table.encode(table.decode(action), table.share(action)) == action).all()
    assert ActionTable.from_dict(table.to_dict()) == table


def test_action_reaches_its_class() -> None:
    table = ActionTable(CLASSES)
    action = np.array([0, 0, 0, 0, 3, 1, 2, 0, 5, 3, 4, 0])
    view = make_view(np.random.default_rng(3))
    plan = table.expand(table.decode(action), view)
    for c, tree in enumerate([(0, 1, 2), (3, 2, 8), (6, 8, 32)]):
        slots = view.active & (view.slo_class == c)
        assert slots.any(), "the seed must put every class in a slot"
        assert (np.stack(plan[:3])[:, slots] == np.array(tree)[:, None]).all()
    assert (plan.margin == 1).all() and table.lossless
    assert plan.node_budget == view.limits.slots * view.limits.max_nodes


def test_a_table_of_shares_says_how_many_may_run() -> None:
    table, plain = sized_tiers(CLASSES), ActionTable(CLASSES)
    view = make_view(np.random.default_rng(3))
    assert table.nvec.tolist() == [*plain.nvec, 7] and table.neutral.tolist() == [*[0] * 12, 6]
    assert plain.share(plain.neutral) == 1.0 and "running" not in plain.to_dict()
    assert "running" not in plain.figures(plain.neutral)
    actor = table.actor()
    actor.reset(view.limits)
    assert actor.plan(view).max_running is None and actor.decide(table.neutral) == 0
    view = view._replace(limits=view.limits._replace(slots=10))
    view = view._replace(active=np.ones(10, np.bool_), slo_class=np.zeros(10, np.int64))
    for tier, (share, most) in enumerate(zip(SHARES, (1, 2, 2, 3, 4, 5), strict=False)):
        action = table.neutral
        action[-1] = tier
        assert actor.decide(action) == 3, "all classes see it"
        assert actor.decide(action) == 0
        assert table.figures(action)["running"] == share
        assert actor.plan(view).max_running == most
    action[0] = 1
    assert actor.decide(action) == 1
    actor.reset(view.limits)
    assert actor.plan(view).max_running is None
    with pytest.raises(UserError, match="4 for each class and one for running"):
        table.decode(plain.neutral)
    with pytest.raises(UserError, match="outside the table"):
        table.decode(np.array([*[0] * 12, 7]))
    with pytest.raises(UserError, match=r"running 0\.3 is no tier"):
        table.encode(table.off(), 0.3)


def test_idle_slots_may_hold_any_class() -> None:
    table, view = ActionTable(CLASSES), make_view(np.random.default_rng(3))
    view.slo_class[~view.active] = 77
    assert table.expand(table.off(), view).depth.max() == 0


@pytest.mark.parametrize(
    "action",
    [np.zeros(11, int), np.zeros(12), np.full(12, -1), np.full(12, 6), np.zeros((3, 4), int)],
    ids=["short", "floats", "negative", "beyond", "matrix"],
)
def test_actions_outside_the_table(action: np.ndarray) -> None:
    with pytest.raises(UserError, match="expected"):
        ActionTable(CLASSES).decode(action)


def test_plan_outside_the_table() -> None:
    one = np.ones(3, dtype=np.int64)
    with pytest.raises(UserError, match="depth 5 is no tier"):
        ActionTable(CLASSES).encode(PlanByClass(5 * one, one, 2 * one, np.ones(3)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"depths": [1, 2]}, "expected 0 among them"),
        ({"depths": [0, 2, 1]}, "rising"),
        ({"widths": []}, "rising"),
        ({"nodes": [2, 4.5]}, "whole numbers"),
        ({"nodes": [True, 4]}, "whole numbers"),
        ({"margins": [0.8, 1.0]}, "lossless"),
        ({"margins": [1.0, float("nan")]}, "lossless"),
        ({"margins": [1.0, "x"]}, "lossless"),
        ({"class_names": ["a", "a"]}, "each once"),
        ({"class_names": [1]}, "as text"),
        ({"widths": 3}, "a list"),
        ({"more": []}, "expected the keys"),
        ({"running": [0.5]}, "1.0 last"),
        ({"running": [0.0, 1.0]}, "above 0"),
        ({"running": [0.5, 0.25, 1.0]}, "rising"),
        ({"running": [True]}, "shares of the slots"),
        ({"running": []}, "shares of the slots"),
    ],
)
def test_bad_tables(change: dict, says: str) -> None:
    with pytest.raises(UserError, match=says):
        ActionTable.from_dict({**ActionTable(CLASSES).to_dict(), **change})
