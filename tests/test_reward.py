"""What a step earns and how an episode is summed up, from hand-made records."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from engine.request import RequestRecord, Status
from envs.reward import GoodputReward, Standing, Tally, serving_summary, standing_of
from tests.test_features import make_view


def record(**changes: Any) -> RequestRecord:
    """A request that met everything, but for `changes`."""
    values: dict[str, Any] = {
        "id": 0, "slo_class": 0, "status": Status.FINISHED, "prompt_tokens": 4,
        "output_tokens": 11, "arrival_s": 1.0, "admitted_s": 1.0, "first_token_s": 1.5,
        "finish_s": 6.0, "tpot_s": 0.4, "tpot_objective_s": 0.5, "ttft_objective_s": math.inf,
        "valid_tokens": 11, "iterations": 5, "verified_nodes": 9,
    }  # fmt: skip
    return RequestRecord(**{**values, **changes})


def test_reward_values() -> None:
    tally = Tally(iterations=2, busy_s=0.2, emitted_tokens=10, valid_tokens=8)
    tally.ended = [record(), record(tpot_s=0.6)]
    integral = GoodputReward(violation_tokens=4, price=0.5).parts(tally, 0.05, slots=4)
    off = {"tail": 0.0, "waiting": 0.0, "energy": 0.0, "switching": 0.0}
    assert integral == pytest.approx({"valid": 2.0, "violations": -1.0, "time": -2.0, **off})
    rate = GoodputReward("rate", violation_tokens=4).parts(tally, 0.05, slots=4)
    assert rate == pytest.approx({"valid": 0.5, "violations": -0.25, "time": 0.0, **off})
    assert GoodputReward("rate").parts(Tally(), 0.05, 4)["valid"] == 0
    with pytest.raises(UserError, match="form"):
        GoodputReward("sum")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="price"):
        GoodputReward(price=math.nan)


def test_what_is_priced_beside_tokens_in_time() -> None:
    tally = Tally(busy_s=0.2, energy_joules=30.0)  # four token times
    standing = Standing(late_tokens=12.0, waiting=0.25)
    earns = GoodputReward("integral", 0.0, 0.0, 0.1, 2.0, 0.2, 3.0)
    integral = earns.parts(tally, 0.05, 4, standing, switched=2)
    # 0.1 · 12 / 4 · 4, 2 · 0.25 · 4, 0.2 · 30 / 4, 3 · 2 / 4
    wanted = {"tail": -1.2, "waiting": -2.0, "energy": -1.5, "switching": -1.5}
    assert {name: integral[name] for name in wanted} == pytest.approx(wanted)
    rate = replace(earns, form="rate").parts(tally, 0.05, 4, standing, switched=2)
    assert {name: rate[name] for name in wanted} == pytest.approx(
        {name: value / 4 for name, value in wanted.items()}
    )


def test_the_integral_form_does_not_hang_on_how_time_is_split() -> None:
    reward, standing = GoodputReward(tail_price=0.1, waiting_price=2.0), Standing(5.0, 0.5)
    halves = 2 * sum(reward.parts(Tally(busy_s=0.1), 0.05, 4, standing).values())
    whole = sum(reward.parts(Tally(busy_s=0.2), 0.05, 4, standing).values())
    assert whole == pytest.approx(halves) and whole < 0
    rated = GoodputReward("rate", tail_price=0.1, waiting_price=2.0)
    negative_control = sum(rated.parts(Tally(busy_s=0.1), 0.05, 4, standing).values())
    assert 2 * negative_control != pytest.approx(
        sum(rated.parts(Tally(busy_s=0.2), 0.05, 4, standing).values())
    )


def test_who_is_late_and_who_waits() -> None:
    view = make_view(np.random.default_rng(0))._replace(
        active=np.array([True, True, False, True]),
        slack_tokens=np.array([-3.0, 2.0, -9.0, -99.0]),
        class_tpot_objective_s=np.array([0.1, math.inf, 0.2]),
        oldest_queued_s=np.array([0.0, 25.6, 51.2]),
        unloaded_tpot_s=0.05,
    )
    # 3 and, of the lost one, 32; 25.6 / 0.05 and 51.2 / 0.2 token times
    assert standing_of(view) == (35.0, 0.5)


def test_summary_values() -> None:
    records = [
        record(),
        record(tpot_s=0.6, slo_class=1),
        record(status=Status.UNFINISHED, output_tokens=3, slo_class=1, finish_s=11.0),
        record(tpot_objective_s=math.inf),  # nothing promised: left out
    ]
    cut = serving_summary(records, DEFAULT_CLASSES.names, drained=False)
    assert cut["attainment"] == 0.5 and cut["unfinished"] == 1
    assert cut["goodput_tps"] == pytest.approx(11 / 10)
    assert cut["throughput_tps"] == pytest.approx(36 / 10)
    assert cut["attainment/coding"] == 1 and cut["attainment/chat"] == 0
    assert math.isnan(cut["attainment/summarization"])
    end = serving_summary(records, DEFAULT_CLASSES.names, drained=True)
    assert end["attainment"] == pytest.approx(1 / 3)
