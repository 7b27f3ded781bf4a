"""Each metric on requests whose numbers can be checked in the head."""

import math
from typing import Any

import pytest

from engine.classes import ClassTable, SLOClass
from engine.request import RequestRecord, Status
from eval import metrics

CLASSES = ClassTable((SLOClass("coding", 1.2), SLOClass("chat", 2.0)))
INF = math.inf


def record(**changes: Any) -> RequestRecord:
    """A request of ten tokens that arrived at 0, began at 1 s and took 1 s a token."""
    values: dict[str, Any] = {
        "id": 0,
        "slo_class": 0,
        "status": Status.FINISHED,
        "prompt_tokens": 5,
        "output_tokens": 10,
        "arrival_s": 0.0,
        "admitted_s": 0.5,
        "first_token_s": 1.0,
        "finish_s": 10.0,
        "tpot_s": 1.0,
        "tpot_objective_s": 1.2,
        "ttft_objective_s": INF,
        "valid_tokens": 9,
        "iterations": 5,
        "verified_nodes": 20,
    }
    return RequestRecord(**(values | changes))


CUT = record(
    status=Status.UNFINISHED,
    admitted_s=math.nan,
    first_token_s=math.nan,
    tpot_s=math.nan,
    output_tokens=0,
    valid_tokens=0,
    finish_s=20.0,
)
ONE_TOKEN = record(output_tokens=1, tpot_s=math.nan, valid_tokens=0)


def test_attainment_counts_a_late_request_as_a_miss() -> None:
    assert metrics.attainment([record(), record(tpot_s=1.3)]) == 0.5


def test_mean_tpot_equal_to_the_objective_is_met() -> None:
    assert metrics.tpot_attainment([record(tpot_s=1.2)]) == 1.0


def test_an_unfinished_request_misses_every_objective() -> None:
    cut = CUT._replace(ttft_objective_s=5.0)
    assert metrics.tpot_attainment([cut]) == 0.0
    assert metrics.ttft_attainment([cut]) == 0.0
    assert metrics.violations([cut]) == 1


def test_a_one_token_answer_counts_as_met() -> None:
    assert metrics.tpot_attainment([ONE_TOKEN]) == 1.0


def test_a_request_without_an_objective_is_left_out_everywhere() -> None:
    free = record(tpot_objective_s=INF)
    assert math.isnan(metrics.attainment([free]))
    assert metrics.attainment([free, record(tpot_s=9.0)]) == 0.0
    assert metrics.violations([free]) == 0
    assert metrics.goodput_tps([free]) == 0.0
    assert metrics.throughput_tps([free]) == 1.0


def test_ttft_and_tpot_shares_stand_alone_and_together() -> None:
    records = [
        record(ttft_objective_s=0.5),
        record(ttft_objective_s=2.0),
        record(ttft_objective_s=2.0, tpot_s=3.0),
    ]
    assert metrics.ttft_attainment(records) == pytest.approx(2 / 3)
    assert metrics.tpot_attainment(records) == pytest.approx(2 / 3)
    assert metrics.attainment(records) == pytest.approx(1 / 3)


def test_ttft_share_has_only_requests_with_a_ttft_objective() -> None:
    assert math.isnan(metrics.ttft_attainment([record()]))


def test_goodput_has_attaining_tokens_over_the_span_of_all() -> None:
    records = [record(), record(arrival_s=5.0, finish_s=20.0, tpot_s=2.0, output_tokens=30)]
    assert metrics.span_s(records) == 20.0
    assert metrics.goodput_tps(records) == 0.5
    assert metrics.throughput_tps(records) == 2.0


def test_valid_tokens_count_even_in_a_late_request() -> None:
    assert metrics.valid_tps([record(tpot_s=2.0, valid_tokens=4)]) == 0.4


def test_percentiles_are_observed_values() -> None:
    found = metrics.percentiles(range(1, 101))
    assert (found.p50, found.p95, found.p99) == (50, 95, 99)
    assert metrics.percentiles([7.0]).p99 == 7.0
    assert math.isnan(metrics.percentiles([]).p50)


def test_percentiles_take_infinite_values() -> None:
    found = metrics.percentiles([1.0, 2.0, INF])
    assert (found.p50, found.p95) == (2.0, INF)


def test_a_request_cut_before_its_first_token_has_no_tpot_and_an_endless_ttft() -> None:
    assert metrics.ttft_percentiles([CUT]).p50 == INF
    assert math.isnan(metrics.tpot_percentiles([CUT]).p50)
    assert metrics.completion_percentiles([record(), CUT]).p99 == INF


def test_a_request_cut_after_its_first_token_counts_with_its_wait() -> None:
    cut = CUT._replace(first_token_s=4.0, output_tokens=1)
    assert metrics.tpot_percentiles([cut]).p50 == 16.0


def test_one_token_answers_have_no_tpot() -> None:
    assert metrics.tpot_percentiles([ONE_TOKEN, record(tpot_s=3.0)]).p50 == 3.0
    assert math.isnan(metrics.tpot_percentiles([ONE_TOKEN]).p50)


def test_tpot_ratio_is_to_the_requests_own_objective() -> None:
    records = [record(tpot_s=2.4), record(tpot_objective_s=INF, tpot_s=99.0)]
    assert metrics.tpot_ratio_percentiles(records).p99 == pytest.approx(2.0)


def test_queue_age_of_a_request_that_never_got_a_slot_runs_to_the_cut() -> None:
    assert metrics.largest_queue_age_s([record(), CUT]) == 20.0
    assert metrics.largest_queue_age_s([]) == 0.0


def test_summary_has_every_class_and_adds_up() -> None:
    records = [record(), record(tpot_s=5.0), CUT]
    summary = metrics.summarise(records, CLASSES)
    assert (summary.requests, summary.unfinished, summary.violations) == (3, 1, 2)
    assert summary.attainment == pytest.approx(1 / 3)
    assert list(summary.by_class) == ["coding", "chat"]
    coding, chat = summary.by_class.values()
    assert (coding.requests, coding.violations, coding.verified_nodes) == (3, 2, 60)
    assert chat.requests == 0
    assert math.isnan(chat.attainment)


def test_summary_of_no_requests_has_no_rates() -> None:
    summary = metrics.summarise([], CLASSES)
    assert summary.goodput_tps == summary.span_s == 0.0
    assert math.isnan(summary.attainment)
