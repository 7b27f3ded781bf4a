"""The frontier's audit and verdicts on numbers checked in the head, and one real run."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest

from engine.classes import ClassTable, SLOClass
from engine.errors import UserError
from engine.protocol import Outcome, View
from engine.request import Status
from eval.frontier import audit
from eval.frontier.serving import Task, served
from eval.frontier.summary import rows_of, summary_of
from eval.frontier.whole import Options
from eval.replay_world import World
from tests.test_metrics import CUT, record

CLASSES = ClassTable((SLOClass("coding", 1.2), SLOClass("chat", 2.0)))


def outcome(**changes: Any) -> Outcome:
    """Three slots, of which two decoded: one of either class."""
    values: dict[str, Any] = dict.fromkeys(Outcome._fields, 0)
    values |= {
        "ran": np.array([True, True, False]),
        "slo_class": np.array([0, 1, 1]),
        "drafted": np.array([3, 1, 9]),
        "verified": np.array([4, 1, 9]),
        "prefill_s": 0.5,
        "draft_s": 4.0,
        "select_s": 1.0,
        "verify_s": 4.0,
    }
    return Outcome(**(values | changes))


def test_jains_index_by_hand() -> None:
    assert audit.jain([50.0, 50.0, 50.0]) == pytest.approx(1.0)
    assert audit.jain([90.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert audit.jain([3.0, 1.0]) == pytest.approx(16 / 20)
    assert audit.jain([3.0, 1.0, math.nan]) == pytest.approx(16 / 20)
    assert audit.jain([0.0, 0.0]) == 1.0  # nobody has anything: all fare alike
    assert math.isnan(audit.jain([math.nan]))


def test_device_time_goes_to_whoever_used_it() -> None:
    work = audit.Work(CLASSES)
    work.on_iteration(cast(Any, None), cast(View, None), outcome())
    # Drafting 4 s as 3 to 1, selection and verification 5 s as 4 to 1; the third slot did not run.
    assert work.decoding_s.tolist() == [3.0 + 4.0, 1.0 + 1.0]
    nobody = outcome(ran=np.zeros(3, np.bool_), draft_s=0.0, select_s=0.0, verify_s=0.0)
    work.on_iteration(cast(Any, None), cast(View, None), nobody)
    for of in (record(prompt_tokens=30), record(slo_class=1, prompt_tokens=10), CUT):
        work.on_record(of)  # the last one was never read
    # Two iterations read prompts for half a second each, 30 tokens to 10.
    assert work.device_s().tolist() == [7.0 + 0.75, 2.0 + 0.25]


def test_a_class_by_hand() -> None:
    waited = record(admitted_s=201.0, first_token_s=202.0, finish_s=211.0)
    records = [
        record(),
        record(status=Status.REJECTED, output_tokens=0, valid_tokens=0, finish_s=0.0),
        record(degraded_to=1, tpot_s=1.5),
        waited,
    ]
    found = audit.of_class(records, 1.0)
    assert found["requests"] == 4
    assert found["attainment"] == 50.0  # the first, and the one that waited: it has no TTFT
    assert found["rejected"] == found["degraded"] == found["starved"] == 25.0
    assert found["largest_queue_age_s"] == 201.0
    assert audit.of_class(records, 1.1)["starved"] == 0.0  # 220 s would be starving there


def run(goodput: float, **classes: float) -> dict[str, Any]:
    """What `served` brings, with so much of the coding class turned away."""
    plain = {
        "attainment": 50.0,
        "rejected": classes.get("rejected", 0.0),
        "degraded": 0.0,
        "starved": 0.0,
        "unfinished": 0.0,
        "largest_queue_age_s": 2.0,
        "token_share": 100.0,
        "device_share": 100.0,
    }
    of_all = {
        "attainment": classes.get("attainment", 50.0),
        "goodput_tps": goodput,
        "jain": 1.0,
        "largest_queue_age_s": 2.0,
        "rejected": 0.0,
        "waste": 10.0,
        "joules_per_valid_token": 1.0,
        "valid_tokens_per_device_s": 1.0,
    }
    return {"all": of_all, "classes": {"coding": plain}}


def test_what_a_policy_brings_and_who_pays() -> None:
    seeds, runs = [1, 2, 3, 4, 5], {}
    for seed in seeds:
        noise = 0.01 * seed
        runs["it", "none", 0.5, seed] = run(10.0 + noise, attainment=95.0)
        runs["it", "reject", 0.5, seed] = run(10.0 + noise, attainment=95.0)
        runs["it", "none", 2.0, seed] = run(10.0 + noise)
        runs["it", "reject", 2.0, seed] = run(30.0 + 2 * noise, rejected=60.0)
    found = summary_of(["it"], ["none", "reject"], [0.5, 2.0], seeds, runs)["verdicts"]["it"]
    says = "it under overload policy none meets 90 % up to 0.5 × capacity"
    assert found["feasible"] == {"load": 0.5, "says": says}
    says = found["policies"]["reject"]["says"]
    assert says.startswith("reject against none at 2 ×: goodput 20.0 tokens/s higher")
    assert says.endswith("Jain's index: no difference shown")
    assert "turned away: 60 % of coding" in found["audit"]["reject"]
    assert "turned away:" not in found["audit"]["none"]


def test_a_demand_is_met_where_the_whole_interval_says_so() -> None:
    at = {1: 99.0, 2: 99.0, 3: 75.0}
    runs = {("it", "reject", 1.0, s): run(1.0, attainment=of) for s, of in at.items()}
    found = summary_of(["it"], ["reject"], [1.0], list(at), runs)
    attainment = found["cells"]["it"]["reject"][0]["all"]["attainment"]
    assert attainment["value"] > 90.0 > attainment["low"] and attainment["high"] == 100.0
    says = "it under overload policy reject is not shown to meet 90 % at any of the demands"
    assert found["verdicts"]["it"]["feasible"] == {"load": None, "says": says}


def test_where_all_runs_failed_nothing_else_is_said() -> None:
    failed = {"failed": "ValueError: no"}
    runs = {("it", o, 2.0, s): failed for o in ("none", "reject") for s in (1, 2)}
    found = summary_of(["it"], ["none", "reject"], [2.0], [1, 2], runs)["verdicts"]["it"]
    assert found["feasible"]["says"] == "it under overload policy none: all runs failed"
    assert found["audit"]["reject"] == "it, reject at 2 ×: all runs failed"
    says = found["policies"]["reject"]["says"]
    assert says.endswith("goodput: nothing to compare, Jain's index: nothing to compare")


def test_a_failed_run_is_marked_and_the_others_stand() -> None:
    runs = {
        ("it", "none", 2.0, 1): run(10.0),
        ("it", "none", 2.0, 2): {"failed": "ValueError: no"},
    }
    found = summary_of(["it"], ["none"], [2.0], [1, 2], runs)
    assert found["cells"]["it"]["none"][0]["runs"] == 1
    assert found["failed"][0]["seed"] == 2
    assert [row["class"] for row in rows_of(runs)] == ["all", "coding", "all"]


def test_a_demand_at_which_a_run_failed_is_not_met() -> None:
    loads, seeds = [0.5, 0.7], [1, 2, 3]
    runs = {("it", "none", x, s): run(10.0, attainment=99.0) for x in loads for s in seeds}
    runs["it", "none", 0.7, 3] = {"failed": "ValueError: no"}
    found = summary_of(["it"], ["none"], loads, seeds, runs)
    assert found["verdicts"]["it"]["feasible"]["load"] == 0.5


def test_past_capacity_rejecting_turns_away_and_shares_add_up() -> None:
    def at(overload: str) -> dict[str, Any]:
        return served(Task(World(), 12.0, 3.0, overload, "chain(1)", 1000))

    none, reject = at("none"), at("reject")
    assert none["all"]["rejected"] == 0.0 < reject["all"]["rejected"]
    for found in (none, reject):
        shares = [of["device_share"] for of in found["classes"].values()]
        assert sum(shares) == pytest.approx(100.0)
        assert sum(of["token_share"] for of in found["classes"].values()) == pytest.approx(100.0)
        assert 1 / 3 - 1e-9 <= found["all"]["jain"] <= 1.0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (Options(seeds=0), "--seeds 0"),
        (Options(overloads=("refuse",)), "--overload refuse: expected one of none, reject"),
        (Options(loads=(1.0, 1.0)), "--loads: one is named twice"),
        (Options(loads=(0.0,)), "--loads 0"),
        (Options(seconds=1.0), "--seconds 1"),
    ],
)
def test_what_cannot_be_meant_is_told_in_a_sentence(options: Options, says: str) -> None:
    with pytest.raises(UserError, match=says):
        options.check()
