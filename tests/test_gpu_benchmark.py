"""The figures promised for the card: what is excused, what is not, and how each is worked out.

The card's own are computed on tiny networks here, so that their code runs; no time is asserted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from benchmarks import card_time, gpu, gpu_card, gpu_proofs
from benchmarks.bench import Bench
from benchmarks.card_time import BusyTime, covered, measure_bandwidth
from benchmarks.command import measure
from benchmarks.figures import Figure, MissingHardwareError, UnmeasuredError
from benchmarks.fresh_clone import Clones
from engine.protocol import Limits
from engine.tiny import tiny_server
from models import flashinfer_interpreter
from models.draft_head import DraftHead

ROOT = Path(__file__).resolve().parents[1]


def figure(name: str) -> Figure:
    """One of the list."""
    return next(one for one in gpu.FIGURES if one.name == name)


def test_the_issues_bars_are_all_there() -> None:
    assert {one.name: str(one.bar) for one in gpu.FIGURES} == {
        "episodes": "≤ 0 of 200",
        "properties": "≤ 0",
        "signatures": "≤ 0",
        "card_floor": "≤ 1.25",
        "card_tree": "≤ 1.3",
        "card_overhead": "≤ 5 %",
    }
    assert (gpu_proofs.SCHEDULES, gpu_proofs.CASES) == (200, 1000)


# -- proofs ----------------------------------------------------------------------------------------


@pytest.fixture
def bench() -> Bench:
    """A quick bench whose networks cannot be had."""
    return gpu.new_bench(quick=True)


def test_without_a_card_its_figures_are_excused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for one in gpu.FIGURES:
        if one.name.startswith("card_"):
            row = measure(one, bench)
            assert (row.status, row.note) == ("excused", "no CUDA card on this machine")


def test_a_missing_package_is_no_missing_hardware(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    row = measure(figure("signatures"), bench)
    assert row.status == "unmeasured" and not row.passes
    assert "pip install --no-deps flashinfer-python==0.6.18" in row.note


def test_signatures_are_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    package: Any = ModuleType("flashinfer")
    vars(package).update(vars(flashinfer_interpreter), __version__="0.6.18")
    monkeypatch.setitem(sys.modules, "flashinfer", package)
    row = measure(figure("signatures"), bench)
    assert row.status == "holds" and row.note.startswith("flashinfer 0.6.18, ")
    package.append_paged_kv_cache = lambda keys: None  # negative control
    row = measure(figure("signatures"), bench)
    assert row.status == "missed" and "append_paged_kv_cache" in row.note


def test_episodes_and_properties_are_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_proofs, "QUICK_SCHEDULES", 1)
    monkeypatch.setattr(gpu_proofs, "QUICK_CASES", 2)
    assert measure(figure("episodes"), bench).value == "1 of 1 with equal text"
    row = measure(figure("properties"), bench)
    assert row.status == "holds" and row.value.startswith("0 properties fail in ")
    for failed, ran in ((1, 8), (0, 0)):  # one that fails; none that ran
        monkeypatch.setattr(
            "tests.graph_properties.run_graph_properties", lambda cases, found=(failed, ran): found
        )
        assert measure(figure("properties"), bench).status == "missed"

    def raising(error: Exception) -> Any:
        def differs(*_: object, **__: object) -> Any:
            raise error

        return differs

    for error in (AssertionError("request 3 differs"), ValueError("q is not as planned")):
        for name, run in (
            ("episodes", "tests.interpreted_schedules.run_interpreted_schedules"),
            ("properties", "tests.paged_properties.run_properties"),
        ):
            monkeypatch.setattr(run, raising(error))
            row = measure(figure(name), bench)
            assert row.status == "missed" and str(error) in row.note


# -- the card's ------------------------------------------------------------------------------------


@pytest.fixture
def tiny_bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The card's figures on a tiny network, over few steps."""
    monkeypatch.setattr(gpu_card, "QUICK_STEPS", 2)
    monkeypatch.setattr(gpu_card, "SKIPPED", 1)
    monkeypatch.setattr(gpu_card, "PROMPT_TOKENS", 8)
    monkeypatch.setattr(gpu_card, "CEILING_BYTES", 2**16)
    limits = Limits(slots=2)

    def nothing(*_: object) -> Any:
        raise AssertionError("asks for prompts or a reference")

    return Bench(
        lambda: tiny_server(dtype="float32", limits=limits, capacity_tokens=192),
        nothing,
        nothing,
        Clones(ROOT),
        quick=True,
    )


def test_the_cards_figures_are_worked_out(
    tiny_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor = gpu_card.step_floor(tiny_bench, "")
    assert floor.value == pytest.approx(floor.raw["step_ms"] / floor.raw["floor_ms"])
    assert floor.raw["steps"] == 2
    tree = gpu_card.tree_verification(tiny_bench, "")
    assert tree.value == pytest.approx(tree.raw["tree_ms"] / tree.raw["one_token_ms"])
    assert "63 nodes" in tree.note

    @contextmanager
    def half_busy(device: torch.device) -> Iterator[BusyTime]:
        busy = BusyTime()
        yield busy
        busy.seconds = 0.5 * whole_s * 2

    whole_s = 1.0
    monkeypatch.setattr(gpu_card, "decode_s", lambda outcome: whole_s)
    monkeypatch.setattr(card_time, "busy_time", half_busy)
    overhead = gpu_card.overhead(tiny_bench, "")
    assert overhead.value == pytest.approx(50.0)  # two iterations of a second, one second of work
    assert overhead.raw["iterations"] == 2


def test_too_few_requests_are_no_figure(tiny_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_card, "random_prompts", lambda server, count, tokens: [[1, 2]])
    with pytest.raises(UnmeasuredError, match="fewer than 2 requests"):
        gpu_card.overhead(tiny_bench, "")


def test_failing_drafts_are_no_figure(tiny_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without drafts an iteration is ordinary decoding, and its host works less."""

    def raises(*_: object, **__: object) -> Any:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(DraftHead, "run", raises)
    with pytest.raises(UnmeasuredError, match="1 draft calls raised by iteration 1"):
        gpu_card.overhead(tiny_bench, "")


def test_random_8b_says_that_the_card_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MissingHardwareError):
        gpu_card.random_8b()


def test_time_side_by_side_counts_once() -> None:
    assert covered([]) == 0.0
    assert covered([(5.0, 7.0), (0.0, 2.0), (1.0, 3.0), (1.5, 1.6)]) == pytest.approx(5.0)


def test_bandwidth_is_the_better_of_two() -> None:
    found = measure_bandwidth(torch.device("cpu"), 4096, repeats=2)
    assert found.ceiling == max(found.read, found.copied) > 0


# -- the command -----------------------------------------------------------------------------------


def test_the_command_writes_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gpu.json"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--check", "--only", "card", "--out", str(out)])
    with pytest.raises(SystemExit) as stop:  # three figures were never measured
        gpu.main()
    assert stop.value.code == 1
    assert "unmeasured, excused" in capsys.readouterr().out
    data = json.loads(out.read_text())
    assert {row["status"] for row in data["figures"].values()} == {"excused"}
    assert all(run["versions"]["hardware"] for run in data["runs"].values())


@pytest.mark.parametrize("module", ["benchmarks.gpu", "benchmarks.gpu_check"])
def test_help_is_light(module: str) -> None:
    probe = (
        f"import runpy, sys; sys.argv = ['x', '--help']\n"
        f"try: runpy.run_module('{module}', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "print('LOADED', *sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    text, _, loaded = done.stdout.partition("LOADED")
    assert "--only" in text
    assert not {"torch", "numba", "transformers", "scipy"} & set(loaded.split())
