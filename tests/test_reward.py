"""What a step earns and how an episode is summed up, from hand-made records."""

import math
from typing import Any

import pytest

from engine.classes import DEFAULT_CLASSES
from engine.errors import UserError
from engine.request import RequestRecord, Status
from envs.reward import GoodputReward, Tally, serving_summary


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
    assert integral == pytest.approx({"valid": 2.0, "violations": -1.0, "time": -2.0})
    rate = GoodputReward("rate", violation_tokens=4).parts(tally, 0.05, slots=4)
    assert rate == pytest.approx({"valid": 0.5, "violations": -0.25, "time": 0.0})
    assert GoodputReward("rate").parts(Tally(), 0.05, 4)["valid"] == 0
    with pytest.raises(UserError, match="form"):
        GoodputReward("sum")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="price"):
        GoodputReward(price=math.nan)


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
