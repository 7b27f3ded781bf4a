"""Live against replay: the figures by hand, and the tiny pair served on both."""

import math

import numpy as np
import pytest

from engine.request import RequestRecord
from eval.fidelity.figures import BARS, Line, Measured, compared, figures, measured, stages
from eval.fidelity.runs import Case, served_live, served_on_replay
from policies import registry
from tests import tiny_recording
from tests.test_metrics import record


def run(busy_s: float = 2.0, tpot_s: float = 0.1, accepted: int = 60) -> Measured:
    return Measured(
        busy_s=busy_s,
        tokens=100,
        requests_per_s=4.0,
        tpots_s=(tpot_s, 2 * tpot_s, 3 * tpot_s),
        ttfts_s=(0.5, 1.5),
        proposed=np.array([100, 100, 10]),
        accepted=np.array([accepted, 40, 9]),
    )


def by_name(lines: list[Line]) -> dict[str, Line]:
    return {line.figure: line for line in lines}


def test_figures_by_hand() -> None:
    # 2 s over 100 tokens; TPOTs 0.1, 0.2, 0.3: mean 0.2, the 95 % quantile 0.3 - 0.1 · 0.1 = 0.29.
    found = figures(run(), is_drain=False)
    assert found == pytest.approx(
        {"busy time per token": 0.02, "mean TPOT": 0.2, "p95 TPOT": 0.29, "mean TTFT": 1.0}
    )
    assert figures(run(), is_drain=True) == pytest.approx(
        {"busy time per token": 0.02, "capacity": 4.0}
    )


def test_a_run_is_summed_up_from_its_records() -> None:
    records: list[RequestRecord] = [
        record(arrival_s=1.0, finish_s=3.0, output_tokens=5, tpot_s=0.25),
        record(arrival_s=2.0, finish_s=5.0, output_tokens=1, tpot_s=math.nan),
    ]
    found = measured(records, 2.0, np.zeros(3, int), np.zeros(3, int), {})
    assert found.tokens == 6 and found.tpots_s == (0.25,) and found.requests_per_s == 2 / 4


def test_the_bar_is_the_larger_of_its_own_and_twice_the_noise() -> None:
    # Live 2.0 and 2.2 s: mean 2.1, apart by 9.5 %, so 19 % are allowed; replay is 14 % above.
    line = by_name(compared([run(2.0), run(2.2)], run(2.4), False))["busy time per token"]
    assert line.noise == pytest.approx(0.2 / 2.1) and line.bar == pytest.approx(0.4 / 2.1)
    assert line.error == pytest.approx(0.3 / 2.1) and line.holds
    strict = by_name(compared([run(2.1), run(2.1)], run(2.4), False))["busy time per token"]
    assert strict.bar == BARS["busy time per token"] and not strict.holds


def test_the_position_that_errs_most_is_told_and_rare_ones_are_not_judged() -> None:
    lines = by_name(compared([run(), run()], run(accepted=54), False))
    position = lines["accepted length by position"]
    assert position.live == 0.6 and position.error == pytest.approx(-0.1) and not position.holds


def test_one_live_run_is_refused() -> None:
    with pytest.raises(ValueError, match="expected two or more"):
        compared([run()], run(), False)


@pytest.mark.parametrize("name", ["autoregressive", "chain(4)", "eagle3(3,4,8)"])
def test_acceptance_is_the_same_on_both(name: str) -> None:
    live, replay = tiny_recording.live_server(), tiny_recording.replay_server()
    backend = live.backend
    case = Case("a few", lambda: list(tiny_recording.asked(6)), False)
    controller = registry.make(name)
    runs = [served_live(live, replay, controller, case) for _ in range(2)]
    replayed = served_on_replay(replay, controller, case)
    lines = by_name(compared(runs, replayed, case.is_drain))
    if name != "autoregressive":
        assert lines["accepted length by position"].error == 0
    assert live.backend is backend
    # By hand: an ordinary step of the known profile costs 300 µs of deciding.
    of_stages = by_name(stages(runs, replayed))
    assert of_stages["time of controller"].replay == pytest.approx(replay.decision_s)
    assert of_stages["time of verify"].live > 0
