"""`make gpu-check`: every section runs, on tiny networks; one that fails stops no other."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.gpu_check import (
    command,
    graphs,
    kernels,
    learning,
    lossless,
    parity,
    report,
    servers,
    subject,
    throughput,
)
from benchmarks.gpu_check.command import SECTIONS, CheckConfig, check, sections
from benchmarks.gpu_check.frame import Budget, Done, Findings, Section, run_sections
from benchmarks.gpu_check.near_ties import Compared
from benchmarks.gpu_check.one_pass import run_once
from benchmarks.gpu_check.scripted import scripted
from benchmarks.gpu_check.subject import Subject, heads_of
from engine import serving
from engine.errors import UserError
from engine.protocol import Limits
from engine.request import Request
from engine.tiny import tiny_server
from models import flashinfer_interpreter
from models.draft_head import DraftHead
from policies.registry import make
from tests import profile_steps
from tests.scripted_drafter import HandClock

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Servers that are made measure themselves over little, on one thread."""
    monkeypatch.setattr(serving, "PROBE_CONTEXT", 8)
    monkeypatch.setattr(serving, "PROBE_ITERATIONS", 3)
    with profile_steps.one_thread():
        yield


# -- the whole of it -------------------------------------------------------------------------------


def test_every_section_runs_on_a_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module, name, value in (
        (subject, "TINY_LIMITS", Limits(slots=2, max_depth=4, max_width=4, max_nodes=16)),
        (subject, "TINY_CAPACITY_TOKENS", 128),
        (subject, "TINY_BATCHES", (1, 2)),
        (graphs, "TINY_PASSES", ((2, 3),)),
        (lossless, "DRAFTERS", ("eagle3",)),
        (lossless, "TINY_RUNS", 1),
        (lossless, "TINY_ANSWER_TOKENS", 4),
        (lossless, "TINY_TREE_TOKENS", 3),
        (lossless, "TREES", ("eagle3(3,4,8)",)),
        (parity, "TINY_TOKENS", 3),
        (throughput, "TINY_ITERATIONS", 5),
        (throughput, "FIXED", ("autoregressive", "eagle3(3,4,8)")),
        (throughput, "names", lambda: []),
        (learning, "TINY_MINUTES", 0.004),
    ):
        monkeypatch.setattr(module, name, value)
    page = tmp_path / "deep" / "gpu.md"
    done = check(CheckConfig(page, "cpu", tiny=True))
    wrong = {one.section.name: one.findings.wrong for one in done if not one.passes}
    assert wrong.keys() <= {"learning"}, wrong  # a busy machine may end its second too early
    text = page.read_text()
    for section in SECTIONS:
        assert f"## {section.title}" in text
    for word in ("no figure is a card's", "packages | torch", "tiny network", "| eagle3(3,4,8) |"):
        assert word in text, word
    assert "Traceback" not in text
    assert (page.parent / "gpu-profile.json").is_file()
    assert "holds" in capsys.readouterr().out


def test_without_a_card_it_says_so_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"^there is no CUDA card here; .*--device cpu --tiny$"):
        check(CheckConfig())


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (CheckConfig(device="cpu"), "takes hours"),
        (CheckConfig(device="cuda", tiny=True), "add --device cpu"),
        (CheckConfig(tiny=True), "add --device cpu"),
        (CheckConfig(only=("paritty",)), "did you mean parity"),
        (CheckConfig(seconds=0), "expected a number above 0"),
        (CheckConfig(report=Path(".")), "is a folder"),
    ],
)
def test_bad_input_is_told(config: CheckConfig, says: str) -> None:
    with pytest.raises(UserError, match=says):
        config.check()


def test_sections_end_within_ten_minutes() -> None:
    assert sum(one.budget_s for one in SECTIONS if one.name != "kernels") <= CheckConfig().seconds
    chosen = [one.name for one in sections(("large", "parity"))]
    assert chosen == ["kernels", "servers", "parity", "large"]
    assert [one.name for one in sections()] == [one.name for one in SECTIONS]


def test_what_does_not_hold_exits_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(subject: Subject, budget: Budget) -> Findings:
        return Findings("looked", wrong=["it is off"])

    section = Section("x", "X", 1.0, wrong)
    monkeypatch.setattr(command, "sections", lambda only: [section])
    words = ["--device", "cpu", "--tiny", "--report", str(tmp_path / "gpu.md")]
    monkeypatch.setattr(sys, "argv", ["gpu_check", *words])
    with pytest.raises(SystemExit) as stop:
        command.main()
    assert stop.value.code == 1
    assert "**wrong**: it is off" in (tmp_path / "gpu.md").read_text()


# -- the frame -------------------------------------------------------------------------------------


def run(clock: HandClock, total_s: float, *parts: Section) -> list[Done]:
    """Sections over nothing, by a clock that they move."""
    return run_sections(parts, Subject(CPU, tiny=True), total_s, clock=clock)


def test_a_section_that_raises_stops_no_other() -> None:
    clock = HandClock()

    def breaks(subject: Subject, budget: Budget) -> Findings:
        clock.advance(2.0)
        raise RuntimeError("CUDA error:\n an illegal memory access")

    def works(subject: Subject, budget: Budget) -> Findings:
        clock.advance(1.0)
        return Findings("fine")

    first, second = run(clock, 60, Section("a", "A", 9, breaks), Section("b", "B", 9, works))
    assert not first.passes and second.passes
    assert first.findings.wrong == ["RuntimeError: CUDA error: an illegal memory access"]
    assert "in breaks" in first.trace and (first.seconds, second.seconds) == (2.0, 1.0)
    text = report.page([first, second], Subject(CPU, tiny=True), "command", 3.0)
    assert "Does not hold: A." in text and "```\nTraceback" in text


def test_sections_keep_to_their_time_and_say_what_they_cut() -> None:
    clock = HandClock()

    def slow(subject: Subject, budget: Budget) -> Findings:
        done = 0
        while budget.allows(f"part {done + 1}") and done < 9:
            clock.advance(2.0)
            done += 1
        return Findings(f"{done} parts")

    section = Section("a", "A", 5.0, slow)
    first, second, third = run(clock, 8.0, section, section, section)
    assert (first.findings.summary, first.cut) == ("3 parts", ["part 4"])
    assert first.findings.wrong == ["took 6 s where 5 are meant"]
    assert (second.findings.summary, second.cut) == ("1 parts", ["part 2"])  # two seconds are left
    assert not third.passes and third.cut == ["all of it"]
    text = report.page([first, second, third], Subject(CPU, tiny=True), "command", 8.0)
    assert "Left out to keep to 5 s: part 4." in text


def test_a_section_without_bounds_takes_no_time_from_the_others() -> None:
    clock = HandClock()

    def compiles(subject: Subject, budget: Budget) -> Findings:
        clock.advance(300.0)
        return Findings("compiled")

    def works(subject: Subject, budget: Budget) -> Findings:
        clock.advance(4.0)
        return Findings("fine")

    parts = Section("a", "A", math.inf, compiles), Section("b", "B", 5.0, works)
    first, second = run(clock, 5.0, *parts)
    assert first.passes and second.passes and (first.seconds, second.seconds) == (300.0, 4.0)


# -- what goes ahead -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_flashinfer_is_run_once(dtype: torch.dtype) -> None:
    heads = heads_of(subject.SMALL)
    assert heads == (9, 3, 64)
    run_once(flashinfer_interpreter, heads, dtype, CPU)


def test_operators_that_do_not_run_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing says little: the compiler is missing when a plan asks for it."""

    class Uncompiled(flashinfer_interpreter.BatchPrefillWithPagedKVCacheWrapper):
        def plan(self, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError("Could not find nvcc")

    package = SimpleNamespace(
        BatchPrefillWithPagedKVCacheWrapper=Uncompiled,
        append_paged_kv_cache=flashinfer_interpreter.append_paged_kv_cache,
    )
    monkeypatch.setattr(subject, "import_flashinfer", lambda: package)
    told = Subject(CPU).lacking
    assert "RuntimeError: Could not find nvcc" in told and "flashinfer-jit-cache" in told
    on = Subject(torch.device("meta"))
    on.lacking = told
    assert kernels.kernels(on, Budget(1.0)).wrong == [told]
    monkeypatch.setattr(subject, "import_flashinfer", lambda: flashinfer_interpreter)
    assert Subject(CPU).lacking == ""


def test_attention_that_computes_something_else_is_told() -> None:
    class Halved(flashinfer_interpreter.BatchPrefillWithPagedKVCacheWrapper):
        def run(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            return 0.5 * super().run(*args, **kwargs)

    package: Any = SimpleNamespace(
        BatchPrefillWithPagedKVCacheWrapper=Halved,
        append_paged_kv_cache=flashinfer_interpreter.append_paged_kv_cache,
    )
    with pytest.raises(ValueError, match=r"0\.5 off 1"):
        run_once(package, heads_of(subject.SMALL), torch.float32, CPU)


def test_only_what_is_asked_for_is_loaded_ahead() -> None:
    bf16, f32 = torch.bfloat16, torch.float32
    on = Subject(torch.device("meta"), makes=frozenset(("small",)))
    assert list(servers.wanted(on)) == [("small", bf16, on.device)]
    on = Subject(torch.device("meta"))
    assert set(servers.wanted(on)) == {
        ("large", bf16, on.device),
        *(("small", dtype, device) for dtype in (bf16, f32) for device in (CPU, on.device)),
    }


# -- what sections are made of ---------------------------------------------------------------------


def test_texts_that_part_at_a_near_tie_are_explained() -> None:
    levels = torch.tensor([0.0, 1.0, 1.015])
    compared = Compared()
    compared.add([9], [1, 2], [1, 2], lambda text: levels, 0.01)
    compared.add([9], [0, 2, 0], [0, 1, 1], lambda text: levels, 0.01)
    assert (compared.same, compared.unexplained) == (1, [])
    assert str(compared) == "1 of 2, 1 at near ties"
    asked: list[list[int]] = []
    compared.add([9], [0, 2, 0], [0, 0, 1], lambda text: asked.append(list(text)) or levels, 0.01)  # type: ignore[func-returns-value]
    assert asked == [[9, 0]] and "token 1 is 2 or 0, 1.01" in compared.unexplained[0]
    compared.add([9], [1, 2], [1], lambda text: levels, 0.01)
    assert compared.unexplained[1] == "one answer ends after 1 tokens"


def test_a_scripted_server_serves_the_script_and_then_itself() -> None:
    limits = Limits(slots=2, max_depth=3, max_width=2, max_nodes=4)
    server = tiny_server(vocab=16, limits=limits, capacity_tokens=96)
    drafter = server.guard.drafter

    def served() -> tuple[list[list[int]], int]:
        requests = [Request(i, 0, [1, 2, 3], 24, 0.0) for i in range(2)]
        script.give(requests)
        engine = server.engine(requests, backend=script.backend)
        engine.serve(make("chain(3)"))
        return [request.output for request in requests], engine.counters["iterations"]

    with scripted(server, seed=1, chances=[[1.0]]) as script:
        texts, steps = served()
        assert steps == 6  # 23 tokens after the first, four in each iteration
        assert texts[0] != texts[1]  # the same prompt, texts of their own
    assert server.guard.drafter is drafter
    with scripted(server, seed=1, chances=[[1.0]]) as script:
        assert served()[0] == texts


def test_attention_that_is_off_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    on = Subject(CPU, tiny=True)
    monkeypatch.setattr(parity, "attention_error", lambda *_: 0.5)
    monkeypatch.setattr(parity, "compare_texts", lambda *_: Compared())
    monkeypatch.setattr(parity, "FORMATS", (torch.float32,))
    found = parity.parity(on, Budget(60.0))
    assert len(found.wrong) == 4 and "attention, trees in float32" in found.wrong[0]


def test_a_controller_that_fails_is_told_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(throughput, "FIXED", ("autoregressive", "chain(-3)"))
    monkeypatch.setattr(throughput, "names", lambda: [])
    monkeypatch.setattr(throughput, "TINY_ITERATIONS", 5)
    on = Subject(CPU, tiny=True)
    found = throughput.small(on, Budget(60.0))
    assert [row[0] for row in found.table] == ["controller", "autoregressive", "chain(-3)"]
    assert found.table[2][1:] == ["failed", "failed"] and len(found.wrong) == 2
    late = throughput.small(on, Budget(0.0))
    assert late.table[1][1:] == ["cut", "cut"]


def test_a_drafter_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is ordinary decoding's, so that no comparison of texts would notice."""
    for module, name, value in (
        (subject, "TINY_LIMITS", Limits(slots=2, max_depth=4, max_width=4, max_nodes=16)),
        (lossless, "DRAFTERS", ("eagle3",)),
        (lossless, "TINY_RUNS", 1),
        (lossless, "TINY_ANSWER_TOKENS", 4),
        (lossless, "TINY_TREE_TOKENS", 3),
        (lossless, "TREES", ("chain(3)",)),
        (parity, "TINY_TOKENS", 3),
        (throughput, "FIXED", ("autoregressive", "chain(2)")),
        (throughput, "names", lambda: []),
        (throughput, "TINY_ITERATIONS", 5),
        (subject, "TINY_BATCHES", (1,)),
    ):
        monkeypatch.setattr(module, name, value)

    def raises(*_: Any, **__: Any) -> torch.Tensor:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(DraftHead, "run", raises)
    on = Subject(CPU, tiny=True)
    found = lossless.lossless(on, Budget(60.0))
    assert len(found.wrong) == 2 and all("draft calls raised" in line for line in found.wrong)
    compared = parity.compare_texts(on.small, on.small, 0.0, tiny=True)
    assert not compared.unexplained and "draft calls raised" in compared.wrong[0]
    rates = throughput.small(on, Budget(60.0))
    assert rates.table[1][1] != throughput.BROKEN and rates.table[2][1] == throughput.BROKEN
    assert "draft calls raised" in rates.wrong[0]


def test_whatever_a_controller_raises_the_next_one_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(*_: Any) -> str:
        raise KeyError("depth")

    monkeypatch.setattr(throughput, "cell", breaks)
    monkeypatch.setattr(throughput, "FIXED", ("autoregressive", "chain(2)"))
    monkeypatch.setattr(throughput, "names", lambda: [])
    found = throughput.small(Subject(CPU, tiny=True), Budget(60.0))
    assert len(found.wrong) == 4 and "KeyError: 'depth'" in found.wrong[3]


def test_every_controller_of_the_registry_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "names", lambda: ["adaserve", "chain", "sglang-ema"])
    assert throughput.controllers() == [*throughput.FIXED, "adaserve", "sglang-ema"]
