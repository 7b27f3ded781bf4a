"""SGLang's EMA rule, step by step."""

import numpy as np
import pytest

from engine.errors import UserError
from engine.protocol import Limits
from engine.request import Request
from engine.tiny import tiny_server
from policies import registry
from policies.sglang_ema import BRACKETS, Average, SglangEma


def requests_of(count: int, tokens: int = 8) -> list[Request]:
    """Short prompts that all come at once."""
    return [Request(i, 0, [i + 1, i + 2, i + 3], tokens, 0.0) for i in range(count)]


def bracket(number: int, current: int) -> Average:
    """A bracket that is past its warm-up and decides at the fifth batch."""
    made = BRACKETS[number]
    return Average(made.steps, made.down, current, current - 1.0, batches=10)


def feed(average: Average, accepted: float, batches: int = 5) -> int:
    """So many batches that all accept the same; the steps afterwards."""
    for _ in range(batches):
        average.update(accepted)
    return average.current


def test_the_average_and_its_first_step_up() -> None:
    # Begins at 3 steps and e = 2. Five batches of 3 accepted drafts: 3 - 0.8^5 · 1 = 2.67232, above
    # 3 - 0.5, so up to 5; it stays there, since 2.67 is not above 4.5.
    average = bracket(0, 3)
    assert feed(average, 3.0) == 5
    assert average.accepted == pytest.approx(2.67232)


def test_down_over_several_counts_at_once() -> None:
    # At 7 and e = 6; with nothing accepted e = 6 · 0.8^5 = 1.966. Down to 5: 1.966 ≤ 5 - 0.75. To
    # 3: ≤ 3 - 0.75 = 2.25. To 1: not ≤ 1 - 0.5 - 0.25 = 0.25 (max(0.5, 0.5) - 0.25).
    average = bracket(0, 7)
    assert feed(average, 0.0) == 3


def test_nothing_moves_before_the_warm_up_nor_between_decisions() -> None:
    average = bracket(0, 3)
    average.batches = 0
    assert feed(average, 3.0, 14) == 3
    assert feed(average, 3.0, 1) == 5
    assert feed(average, 7.0, 4) == 5


def test_no_steps_tell_nothing_and_are_left_at_the_next_decision() -> None:
    average = bracket(1, 1)  # counts 0, 1, 3; e = 0
    assert feed(average, 0.0) == 0  # 0 ≤ 0.5
    assert feed(average, 0.0) == 1  # the probe
    assert average.accepted == 0.0  # as it was: not fed while at 0 steps


def test_a_bracket_that_never_drafted_probes_from_neutral() -> None:
    average = Average((0, 1), 0.0, 0, -1.0, batches=10)
    assert feed(average, 0.0) == 1
    assert average.accepted == 0.0


def test_batches_go_into_the_bracket_from_their_size_on() -> None:
    controller = SglangEma()
    controller.reset(Limits())
    assert [b.current for b in controller.brackets] == [3, 3, 1, 0]
    server = tiny_server(limits=Limits(slots=9))
    engine = server.engine(requests_of(9))
    view = engine.next_decision()
    assert view is not None and view.active.sum() == 9
    controller.brackets[1].current = 1
    assert set(controller.plan(view).depth.tolist()) == {1}


def test_it_serves_and_follows_acceptance() -> None:
    server = tiny_server()
    controller = registry.make("sglang-ema(steps=5)")
    assert isinstance(controller, SglangEma)
    controller.reset(server.settings.limits)
    engine = server.engine(requests_of(2, tokens=60))
    depths = set()
    while (view := engine.next_decision()) is not None:
        outcome = engine.run_iteration(view, controller)
        depths |= set(outcome.proposed.sum(1)[outcome.ran].tolist())
    assert len(depths) > 1 and controller.brackets[0].batches > 15
    assert np.isfinite(controller.brackets[0].accepted)


def test_bad_steps_are_told() -> None:
    with pytest.raises(UserError, match="sglang-ema: steps is -1"):
        SglangEma(-1)
