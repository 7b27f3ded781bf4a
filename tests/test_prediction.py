"""Predicted against measured: exact on a machine of known costs, judged by bar or by noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import prediction
from benchmarks.bench import Bench
from benchmarks.figures import Bar, Figure, UnmeasuredError, judged
from benchmarks.prediction import Spread, judged_error
from engine.profile import HardwareProfile
from engine.profile.live import profile_server
from engine.serving import LiveServer
from tests import profile_steps
from tests.known_costs import KnownCosts, small_server

FIGURE = Figure("x", "x", Bar("≤", 5), "m:f")


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """Very small networks, on one thread."""
    with profile_steps.one_thread():
        yield small_server()


@pytest.fixture
def costs(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> KnownCosts:
    """Its passes take what a rule says."""
    return KnownCosts(server, monkeypatch)


@pytest.fixture(scope="module")
def known(server: LiveServer) -> HardwareProfile:
    """The profile of those costs."""
    with pytest.MonkeyPatch.context() as patch:
        KnownCosts(server, patch)
        return profile_server(server, True, 3, 0.0, 0)


@pytest.fixture
def bench(server: LiveServer, known: HardwareProfile, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A short run of the benchmark on that profile."""

    def nothing(*_: Any) -> Any:
        raise AssertionError("not asked for")

    monkeypatch.setattr(prediction, "QUICK_RUN_S", 8.0)
    monkeypatch.setattr(prediction, "QUICK_PARTS", 2)
    made = Bench(lambda: server, nothing, nothing, clones=None, quick=True)  # type: ignore[arg-type]
    made.profile = known
    return made


def test_known_costs_are_profiled_and_predicted(
    bench: Bench, server: LiveServer, costs: KnownCosts
) -> None:
    points = prediction.held_out(bench, "")
    assert points.value < 0.5 and points.raw["error"]["p95"] < 0.02
    assert points.raw["noise"]["median"] == pytest.approx(0.0, abs=1e-9)
    for name in ("verify", "draft", "prefill"):
        assert points.raw["details"][name]["error_p95"] < 0.02, name
    run = prediction.served(bench, "")
    assert run.value < 1.0 and run.raw["error"]["p95"] < 0.03
    assert run.raw["details"]["error_with_prompts"] < 0.02
    assert run.raw["noise"]["p95"] == pytest.approx(0.0, abs=1e-9)
    assert judged(FIGURE, run).status == "holds"
    assert server.profile is None  # as it was before
    # Negative control: a machine that became slower after it was measured.
    costs.slow = 1.25
    slowed = prediction.served(bench, "")
    assert slowed.value == pytest.approx(20.0, abs=1.0)
    assert slowed.raw["details"]["middle_steps"] == pytest.approx(0.8, abs=0.01)
    assert judged(FIGURE, slowed).status == "missed"


def test_the_noise_of_a_run_is_that_of_the_run(
    bench: Bench, costs: KnownCosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine changes from part to part: repeated steps tell, the profile's do not."""
    whole = prediction._part

    def slower_each_time(*arguments: Any) -> Any:
        costs.slow *= 1.3
        return whole(*arguments)

    monkeypatch.setattr(prediction, "_part", slower_each_time)
    run = prediction.served(bench, "")
    # Steps took 1, 1.3 and 1.69 times as long: the median lies 0.23 and 0.3 from the others.
    assert run.raw["noise"]["p95"] == pytest.approx(0.3, abs=0.01)
    assert bench.profile.fits["step"].noise_p95 == pytest.approx(0.0, abs=1e-9)


def test_a_figure_holds_by_its_bar_or_by_noise() -> None:
    calm, noisy = Spread(0.01, 0.02), Spread(0.2, 0.3)
    for error, noise, status in (
        (Spread(0.04, 0.11), calm, "holds"),
        (Spread(0.04, 0.2), calm, "missed"),
        (Spread(0.06, 0.11), calm, "missed"),
        (Spread(0.2, 0.3), calm, "missed"),
        (Spread(0.2, 0.3), noisy, "holds"),
        (Spread(0.2, 0.5), noisy, "missed"),
        (Spread(0.31, 0.4), noisy, "missed"),
    ):
        assert judged(FIGURE, judged_error(error, noise, {}, "")).status == status, error


def test_the_drafter_without_a_network_is_left_out(
    bench: Bench, server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.drafter, "name", "prompt-lookup")
    with pytest.raises(UnmeasuredError, match="drafts what it finds"):
        prediction.served(bench, "")
