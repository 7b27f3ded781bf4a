"""SpecDec++'s stopping rule, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import UserError
from engine.protocol import Candidates, Limits
from policies import registry
from policies.specdec_stop import SpecdecStop, rejection
from tests.controller_episodes import depths, serve
from tests.test_features import make_view


def chains(*probabilities: list[float]) -> Candidates:
    """Chains by the draft probability of each token; what lies behind their ends is rubbish."""
    shape = len(probabilities), 8
    size = np.array([len(chain) for chain in probabilities])
    parent = np.tile(np.arange(-1, 7), (len(size), 1))
    path = np.full(shape, 0.999)
    for slot, chain in enumerate(probabilities):
        path[slot, : len(chain)] = np.cumprod(chain)
    return Candidates(size, parent, parent + 2, np.zeros(shape, np.int64), path)


def test_the_probability_of_a_rejection() -> None:
    # 1 - 0.9 · 0.8 = 0.28; 1 - 0.9 · 0.8 · 0.9 = 0.352; 1 - 0.5 = 0.5; nothing drafted: 0.
    found = rejection(chains([0.9, 0.8], [0.9, 0.8, 0.9], [0.5], []))
    assert found == pytest.approx([0.28, 0.352, 0.5, 0.0])


def test_chains_stop_above_the_threshold_but_not_before_the_second_step() -> None:
    controller = SpecdecStop(threshold=0.3)
    view = make_view(np.random.default_rng(0), limits=Limits(slots=3))
    plan = controller.plan(view)
    assert plan.depth.tolist() == plan.nodes.tolist() == [8, 8, 8]  # as deep as the engine goes
    assert (plan.width == 1).all() and (plan.margin == 1).all()

    def goes_on(step: int, *probabilities: list[float]) -> list[bool]:
        return controller.extend(view, plan, step, chains(*probabilities)).tolist()

    assert goes_on(1, [0.9], [0.5], [0.01]) == [True, True, True]
    # 1 - 0.9 · 0.8 = 0.28 ≤ 0.3; 1 - 0.9 · 0.7 = 0.37.
    assert goes_on(2, [0.9, 0.8], [0.9, 0.7], [0.01, 1.0]) == [True, False, False]
    # At the threshold itself it goes on.
    assert SpecdecStop(0.5).extend(view, plan, 2, chains([0.5, 1.0]))[0]


def test_lengths_of_whole_episodes() -> None:
    # At a threshold of 1 nothing stops a chain, at 0 all but certain ones stop at the shortest.
    always = serve("replay", registry.make("specdec-stop(threshold=1.0, longest=5)"))
    never = serve("replay", registry.make("specdec-stop(threshold=0.0, shortest=3)"))
    assert max(depths(always)) == 5 and max(depths(never)) == 3
    cut_by_the_end = {0, 1, 2, 3, 4}  # no more tokens are allowed
    assert depths(always) - {5} <= cut_by_the_end
    middle = serve("replay", registry.make("specdec-stop(threshold=0.97)"))
    assert len(depths(middle) - {0, 1}) > 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"threshold": 1.1}, "threshold is 1.1"),
        ({"threshold": float("nan")}, "threshold is nan"),
        ({"shortest": 0}, "shortest is 0"),
        ({"shortest": 5, "longest": 4}, "1 ≤ shortest ≤ longest"),
        ({"longest": 4.0}, "longest 4.0"),
    ],
)
def test_bad_parameters_are_told(change: dict[str, float], says: str) -> None:
    with pytest.raises(UserError, match=says):
        SpecdecStop(**change)  # type: ignore[arg-type]
