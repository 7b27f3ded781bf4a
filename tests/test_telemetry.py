"""Power and memory: counters where there are any, a labelled model where there are none."""

import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.errors import UserError
from engine.telemetry import PowerMeter, PowerModel, resident_bytes

SPAN = 1_000_000_000


def add_domain(root: Path, folder: str, name: str, microjoules: int) -> Path:
    domain = root / folder
    domain.mkdir()
    (domain / "name").write_text(f"{name}\n")
    (domain / "energy_uj").write_text(f"{microjoules}\n")
    (domain / "max_energy_range_uj").write_text(f"{SPAN}\n")
    return domain / "energy_uj"


def test_model_rises_from_idle_to_peak() -> None:
    model = PowerModel(idle_watts=5.0, peak_watts=25.0, exponent=0.5, full_tokens=16.0)
    assert model.watts(0) == 5.0
    assert model.watts(4) == 15.0
    assert model.watts(16) == model.watts(400) == 25.0
    assert model.joules(2.0, 4) == 30.0


@pytest.mark.parametrize(
    ("field", "value"),
    [("idle_watts", -1.0), ("peak_watts", 1.0), ("exponent", 0.0), ("full_tokens", float("nan"))],
)
def test_impossible_model_is_refused(field: str, value: float) -> None:
    with pytest.raises(UserError, match=field):
        PowerModel(**{field: value})


def test_without_counters_energy_is_modelled_and_says_so(tmp_path: Path) -> None:
    meter = PowerMeter(powercap=tmp_path / "none")
    meter.begin()
    energy = meter.end(busy_s=0.5, tokens_per_pass=8)
    assert not meter.is_measured and not energy.is_measured
    assert energy.joules == PowerModel().joules(0.5, 8)
    assert energy.watts == PowerModel().watts(8)


def test_packages_are_summed_and_their_parts_are_not(tmp_path: Path) -> None:
    first = add_domain(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    second = add_domain(tmp_path, "intel-rapl:1", "package-1", SPAN - 1_000_000)
    core = add_domain(tmp_path, "intel-rapl:0:0", "core", 0)
    whole = add_domain(tmp_path, "intel-rapl:2", "psys", 0)
    meter = PowerMeter(powercap=tmp_path)
    meter.begin()
    first.write_text("4000000")
    second.write_text("1000000")  # wrapped round
    core.write_text("7000000")
    whole.write_text("9000000")
    energy = meter.end(busy_s=0.5, tokens_per_pass=8)
    assert meter.is_measured and energy.is_measured
    assert energy.joules == pytest.approx(5.0)
    assert energy.watts == pytest.approx(10.0)


def test_time_between_iterations_is_not_counted(tmp_path: Path) -> None:
    counter = add_domain(tmp_path, "intel-rapl:0", "package-0", 0)
    meter = PowerMeter(powercap=tmp_path)
    meter.begin()
    meter.end(1.0, 1)
    counter.write_text("8000000")
    meter.begin()
    counter.write_text("9000000")
    assert meter.end(1.0, 1).joules == pytest.approx(1.0)


def test_a_counter_that_stops_answering_leaves_the_model(tmp_path: Path) -> None:
    counter = add_domain(tmp_path, "intel-rapl:0", "package-0", 0)
    meter = PowerMeter(powercap=tmp_path)
    meter.begin()
    counter.unlink()
    assert not meter.end(1.0, 4).is_measured
    assert not meter.is_measured


def test_one_unreadable_package_is_no_measurement(tmp_path: Path) -> None:
    add_domain(tmp_path, "intel-rapl:0", "package-0", 0)
    add_domain(tmp_path, "intel-rapl:1", "package-1", 0).write_text("denied")
    assert not PowerMeter(powercap=tmp_path).is_measured


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/statm is Linux's")
def test_resident_memory_follows_an_allocation() -> None:
    before = resident_bytes()
    # A mapping of its own: an ordinary allocation may be given pages that are resident already.
    with mmap.mmap(-1, 64 << 20) as block:
        np.frombuffer(block, np.uint8)[:] = 1
        assert resident_bytes() - before > 0.8 * len(block)


def test_resident_memory_without_proc_is_the_peak(tmp_path: Path) -> None:
    assert resident_bytes(tmp_path / "none") > 1_000_000
