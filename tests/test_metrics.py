"""Each metric on requests whose numbers can be checked in the head."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


# -- inter-token latency ---------------------------------------------------------------------------

# Ten tokens: the first, then three iterations that emitted 4, 1 and 4 of them, 0.4, 0.1 and 0.5 s
# after the emission before. Nine gaps: 0.4, 0.1, 0.5 and six zeros (three of the first four tokens,
# three of the last four).
IN_BURSTS = record(iterations=3, gaps_s=(0.4, 0.1, 0.5))


def test_an_iteration_of_k_tokens_has_k_gaps_of_which_k_minus_1_are_zero() -> None:
    assert sorted(metrics.inter_token_gaps_s(IN_BURSTS)) == [0.0] * 6 + [0.1, 0.4, 0.5]
    # Ranks of nine: 50 % is the 5th (0), 95 and 99 % the 9th.
    assert metrics.itl_percentiles([IN_BURSTS]) == metrics.Percentiles(0.0, 0.5, 0.5)


def test_gaps_add_up_to_the_decode_time_however_tokens_came() -> None:
    slow = record(iterations=9, gaps_s=(1.0,) * 9)
    assert sum(metrics.inter_token_gaps_s(slow)) == pytest.approx(9 * slow.tpot_s)
    assert len(metrics.inter_token_gaps_s(slow)) == slow.output_tokens - 1
    assert metrics.itl_percentiles([slow]).p50 == 1.0  # the same mean as in bursts may have none


def test_the_wait_of_a_cut_request_is_a_gap() -> None:
    # Three tokens in two iterations, then 7 s of nothing until the cut.
    cut = record(status=Status.UNFINISHED, output_tokens=3, iterations=2, gaps_s=(1.0, 1.0, 7.0))
    assert metrics.itl_percentiles([cut]).p99 == 7.0


def test_without_anybody_who_watched_there_are_no_gaps() -> None:
    assert metrics.inter_token_gaps_s(record(iterations=3)) == []
    assert math.isnan(metrics.itl_percentiles([record(), ONE_TOKEN, CUT]).p50)


@settings(max_examples=200)
@given(values=st.lists(st.floats(0, 100), min_size=1, max_size=300))
def test_percentiles_by_brute_force(values: list[float]) -> None:
    """The smallest value of which enough of the sample is at or below it."""
    found = metrics.percentiles(values)
    for percent, value in ((50, found.p50), (95, found.p95), (99, found.p99)):
        enough = [v for v in values if 100 * sum(w <= v for w in values) >= percent * len(values)]
        assert value == min(enough)


# -- overdue, and what its user withdrew -----------------------------------------------------------


def test_overdue_in_the_queue() -> None:
    waiting = CUT._replace(ttft_objective_s=5.0)  # waited 20 s
    assert waiting.overdue
    assert not waiting._replace(ttft_objective_s=20.0).overdue
    assert record(ttft_objective_s=0.9).overdue  # its first token came at 1 s
    assert not record(ttft_objective_s=1.0).overdue


def test_overdue_while_decoding() -> None:
    # 9 s of decoding at 1.2 s a token: within what 9 tokens after the first are allowed, 10.8 s,
    # and beyond what 7 are, 8.4 s.
    assert not record(max_tokens=10).overdue
    assert record(max_tokens=8).overdue
    assert not record(max_tokens=8, tpot_objective_s=INF).overdue
    assert not record().overdue  # how many tokens it might emit is not known
    assert not record(output_tokens=1, finish_s=1.0, max_tokens=1).overdue


def test_who_left_is_left_out_unless_it_was_overdue_by_then() -> None:
    left = record(status=Status.CANCELLED, output_tokens=3, max_tokens=10)
    assert math.isnan(metrics.attainment([left]))
    too_late = left._replace(max_tokens=4)  # 9 s, and at most 3 x 1.2 s were promised
    assert metrics.attainment([left, too_late]) == 0.0
    assert metrics.violations([left, too_late]) == 1
    in_queue = CUT._replace(status=Status.CANCELLED, ttft_objective_s=5.0)
    assert metrics.attainment([in_queue]) == metrics.ttft_attainment([in_queue]) == 0.0
    assert metrics.summarise([left, too_late], CLASSES).by_class["coding"].overdue == 1


def test_a_rejected_request_is_a_miss_and_counted() -> None:
    rejected = CUT._replace(status=Status.REJECTED)
    found = metrics.summarise_class([rejected, record()])
    assert (found.rejected, found.violations, found.attainment) == (1, 1, 0.5)


def test_good_tokens_are_all_of_an_attaining_request_and_none_of_another() -> None:
    assert record().good_tokens == 10
    assert record(tpot_s=1.3, valid_tokens=9).good_tokens == 0
    assert record(tpot_objective_s=INF).good_tokens == 0
    assert record(status=Status.CANCELLED, max_tokens=10).good_tokens == 0
