"""The controllers' benchmark: its figures, its page, its published worlds, its judgements."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import (
    adaptivespec_live,
    adaserve_constants,
    adaserve_peaks,
    adaserve_sweeps,
    against_adaserve,
    published_world,
)
from benchmarks.adaserve_traces import SYSTEMS, objectives_of, world_of
from benchmarks.bench import Bench
from benchmarks.controllers import FIGURES
from benchmarks.controllers_page import PAGE, SECTIONS
from benchmarks.deciding import timed
from benchmarks.figures import Result, Row, UnmeasuredError, judged
from benchmarks.fresh_clone import Clones
from benchmarks.published_runs import Served, Task, fixed_tree, goodput, served, violations
from benchmarks.published_world import World, prompt_lengths, with_mixed_prompts
from benchmarks.results import Results
from benchmarks.results_page import belongs, page_of
from engine.profile.published import open_profile
from engine.replay.prompt_lengths import with_prompts
from engine.replay.synthetic.generator import SyntheticConfig, draw_recording
from engine.replay.synthetic.pairs import find_pair
from engine.workload import TraceUse, WorkloadConfig
from policies import registry

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def bench() -> Bench:
    """Without networks or prompts."""

    def nothing(*_: object) -> Any:
        raise UnmeasuredError("this figure needs no networks")

    return Bench(nothing, nothing, nothing, Clones(ROOT), quick=True)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Ninety arrivals of two classes; coding's prompts are 1 to 30 tokens, chat's 7."""
    lines = ["arrival_s,prompt_tokens,output_tokens,class"]
    for i in range(90):
        chat = i % 3 == 0
        lines.append(f"{i / 10},{7 if chat else 1 + i % 30},8,{'chat' if chat else 'coding'}")
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def row_of(name: str, raw: dict[str, Any]) -> Row:
    return Row(name, name, "1", "–", "reported", raw=raw)


def runs_of(missed: list[int], good: list[float], p99_s: float = 1.0) -> tuple[Served, ...]:
    tail = SimpleNamespace(p50=p99_s / 20, p99=p99_s)
    of_class = SimpleNamespace(tpot_s=tail, completion_s=tail, tpot_attainment=0.5)
    return tuple(
        Served(
            SimpleNamespace(  # type: ignore[arg-type]
                violations=m,
                goodput_tps=g,
                tpot_attainment=0.5,
                attainment=0.5,
                by_class={"chat": of_class},
            ),
            1.0,
        )
        for m, g in zip(missed, good, strict=True)
    )


# -- figures and page ------------------------------------------------------------------------------


def test_the_issues_bars_are_all_there() -> None:
    bars = {figure.name: str(figure.bar) for figure in FIGURES if figure.bar}
    assert bars == {
        "selection": "≤ 100 µs",
        "selection_share": "≤ 0.3 %",
        "decision": "≤ 500 µs",
        "episodes": "≤ 0",
        "fig14_first": "≥ 0",
        "fig14_vllm": "≤ 5",
        "fig14_sarathi": "≤ 5",
        "fig14_adaserve": "≤ 8",
        "sweeps_ahead": "≥ 80 %",
        "sweeps_violations": "≥ 4.3",
        "sweeps_goodput": "≥ 1.9",
        "adaptivespec_batch1": "≥ 1.05",
        "adaptivespec_batch8": "≥ 1.05",
        "both_axes_batch1": "≥ 1",
        "both_axes_batch8": "≥ 1",
        "frontier_batch1": "≥ 1.3",
        "frontier_batch8": "≥ 1.3",
        "slack_priced": "≥ 5",
        "other_slack_priced": "≥ 5",
        "tails_slack_priced": "≤ 0",
        "live_slack_priced": "< 0",
    }


def test_every_figure_stands_on_the_page_once(tmp_path: Path) -> None:
    for figure in FIGURES:
        assert sum(belongs(figure.name, section.only) for section in SECTIONS) == 1, figure.name
    results = Results(tmp_path / "results.json")
    row = judged(FIGURES[0], Result(64.0, "64 µs", note="best of nine"))
    stamp = {"versions": {"revision": "abc", "hardware": {"processor": "a chip", "cores": 2}}}
    results.add(dataclasses.replace(row, quick=True), "2026-01-01T00:00:00", stamp)
    page = page_of(PAGE, results, FIGURES)
    assert "python -m benchmarks.controllers --only selection decision" in page
    assert "| 64 µs | ≤ 100 µs | yes |" in page
    assert "Measured 2026-01-01T00:00:00 (short runs) on a chip, 2 cores, revision abc." in page
    assert page.count("NO, unmeasured") == sum(1 for f in FIGURES) - 1
    assert "not measured yet" in page


# -- worlds ----------------------------------------------------------------------------------------


def test_prompts_have_the_traces_lengths_by_class(trace: Path) -> None:
    work = WorkloadConfig(duration_s=float("inf"), prompt_tokens=25, trace=TraceUse(str(trace)))
    text_class = np.array([0, 1, 2] * 10)
    lengths = prompt_lengths(work, text_class, 0)
    assert set(lengths[text_class == 1]) == {7}
    coding = np.sort(lengths[text_class == 0])
    assert coding[0] <= 3 and coding[-1] == 25  # what is longer is cut
    assert coding.mean() == pytest.approx(15, abs=2)
    assert set(lengths[text_class == 2]) == {25}  # of no request: the mean of AdaServe's, cut
    assert (prompt_lengths(work, text_class, 1) != lengths).any()


def test_other_prompts_leave_the_answers_alone() -> None:
    config = SyntheticConfig(texts_per_class=1, tokens=6, prompt_tokens=1, max_width=1, max_nodes=2)
    _, recording = draw_recording(find_pair("adaserve-llama-70b"), config, np.random.default_rng(0))
    longer = with_prompts(recording, np.array([3, 1, 5]))
    assert longer.prompt_tokens.tolist() == [3, 1, 5]
    for text in range(3):
        ends = recording.first_token[text + 1], longer.first_token[text + 1]
        before, after = (
            recording.tokens[ends[0] - 6 : ends[0]],
            longer.tokens[ends[1] - 6 : ends[1]],
        )
        assert before.tolist() == after.tolist()
        assert longer.first_token[text + 1] - longer.first_token[text] == [3, 1, 5][text] + 6


def test_a_chunk_read_along_costs_its_tokens_alone() -> None:
    apart = open_profile("adaserve-llama-70b-a100")
    mixed = with_mixed_prompts(apart)
    for tokens in (1, 128, 900):
        cheaper_s = float(apart.prefill_s(tokens) - mixed.prefill_s(tokens))
        assert cheaper_s == pytest.approx(0.030)
    assert mixed.verify == apart.verify


def test_without_the_data_a_figure_is_unmeasured_and_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DRAFTGYM_SHARED", str(tmp_path))
    with pytest.raises(UnmeasuredError, match="data missing"):
        adaserve_peaks.first(bench, "")
    with pytest.raises(UnmeasuredError, match="data missing"):
        adaserve_sweeps.ahead(bench, "")
    with pytest.raises(UnmeasuredError, match="has not been measured"):
        adaserve_peaks.against_published(bench, "vllm")


def test_objectives_are_the_traces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import gzip

    folder = tmp_path / "adaserve"
    folder.mkdir()
    with gzip.open(folder / "arrivals.csv.gz", "wt") as file:
        file.write(
            "trace,arrival_s,prompt_tokens,output_tokens,slo_class,tpot_slo_ms,tpot_slo_x_baseline\n"
            "a,0,1,1,coding,,0.8\na,1,1,1,chat,50.0,\nb,0,1,1,coding,,1.6\n"
        )
    assert objectives_of(folder, "a") == pytest.approx({"coding": 0.024, "chat": 0.05})
    monkeypatch.setenv("DRAFTGYM_SHARED", str(tmp_path))
    world = world_of("b", 60.0)
    assert isinstance(world, World) and world.objectives_s == pytest.approx({"coding": 0.048})


def test_contenders_of_a_seed_are_served_as_if_alone(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_world, "TEXTS_A_CLASS", 4)
    work = WorkloadConfig(
        duration_s=2.0, prompt_tokens=25, max_tokens=8, trace=TraceUse(f"csv:{trace}")
    )
    world = World(work, {"coding": 0.036, "chat": 0.05, "summarization": 0.15})
    specs = {
        "vllm": "vllm",
        "vllm-spec(4)": "vllm-spec(4)",
        "adaserve": "adaserve(budget_tokens=64)",
    }
    together = served(Task("here", world, specs, 1000, 60.0))
    assert set(together) == set(specs)
    for label in ("vllm-spec(4)", "adaserve"):
        alone = served(Task("here", world, {label: specs[label]}, 1000, 60.0))[label]
        assert repr(alone.metrics) == repr(together[label].metrics), label
    assert repr(together["vllm"].metrics) != repr(together["vllm-spec(4)"].metrics)


def test_adaserves_constants_are_those_that_miss_fewest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnmeasuredError, match="adaserve_constants"):
        adaserve_constants.searched(bench)
    specs: list[str] = []

    def compared(worlds: Any, asked: dict[str, str], *_: Any) -> Any:
        specs.extend(asked)
        return {w: {specs[0]: runs_of([3], [9.0]), specs[1]: runs_of([2], [1.0])} for w in worlds}

    monkeypatch.setattr(adaserve_constants, "compared", compared)
    monkeypatch.setattr(adaserve_constants, "worlds", lambda _: {"a": None, "b": None})
    result = adaserve_constants.search(bench, "")
    assert result.value == 4 and result.text == specs[1]
    bench.rows = {"adaserve_constants": row_of("adaserve_constants", dict(result.raw))}
    assert adaserve_constants.searched(bench) == specs[1]
    for trace in ("fig14", "fig8_9", "fig11"):  # it shows nothing that it was searched on
        assert not adaserve_constants.TRACE.startswith(trace)
    assert all(adaserve_constants.TRACE not in traces for traces in adaserve_sweeps.SWEEPS.values())


def test_which_contenders_a_fleet_serves() -> None:
    assert fixed_tree(registry.make("vllm-spec(6)")) == (6, 1, 6)
    assert fixed_tree(registry.make("sarathi")) == (0, 1, 1)
    assert fixed_tree(registry.make("vllm-priority")) is None
    assert fixed_tree(registry.make("adaserve")) is None


# -- judgements ------------------------------------------------------------------------------------


def test_a_point_is_over_the_best_baseline_of_each_kind(bench: Bench) -> None:
    table = {label: runs_of([100, 110], [50.0, 50.0]) for label in SYSTEMS}
    table["sarathi"] = runs_of([80, 88], [60.0, 60.0])
    table["vllm-spec(4)"] = runs_of([90, 90], [70.0, 72.0])
    table["adaserve"] = runs_of([20, 22], [142.0, 142.0])
    point = adaserve_sweeps.point(bench, table)
    assert point["fewest"] == "sarathi" and point["most_goodput"] == "vllm-spec(4)"
    assert point["violations"]["mean"] == pytest.approx(4.0)
    assert point["goodput"]["value"] == pytest.approx(2.0)
    table["adaserve"] = runs_of([10, 11], [142.0, 142.0])
    assert adaserve_sweeps.point(bench, table)["violations"] is None  # fewer than 30


@pytest.mark.parametrize(
    ("ours", "good", "won"),
    [([1, 2, 1, 2], 9.0, True), ([9, 1, 9, 1], 9.0, False), ([1, 2, 1, 2], 5.0, False)],
)
def test_a_workload_is_won_by_violations_without_losing_goodput(
    bench: Bench, ours: list[int], good: float, won: bool
) -> None:
    table = {
        "slack-priced": runs_of(ours, [good, good + 0.1] * 2, p99_s=2.0),
        "adaserve": runs_of([6, 5, 6, 5], [9.0, 9.1] * 2),
        "smart": runs_of([7, 7, 7, 7], [9.0] * 4),
        "chain(4)": runs_of([8, 8, 8, 8], [9.0] * 4),
    }
    told = against_adaserve.difference(bench, table, "adaserve")
    assert told["won"] is won
    assert told["violations"]["mean"] == pytest.approx(np.mean(ours) - 5.5)
    assert against_adaserve.best_other(table) == "smart"
    assert told["worse"] == ["p99 TPOT of chat +1.000 s", "p99 completion of chat +1.000 s"]
    counted = against_adaserve.counted({"one": {"adaserve": told}}, "adaserve")
    assert counted.value == won and counted.text == f"{int(won)} of 6"


def test_figures_of_one_run() -> None:
    runs = runs_of([3, 5], [1.0, 2.0])
    assert violations(runs).tolist() == [3, 5] and goodput(runs).tolist() == [1.0, 2.0]


def test_the_frontier_is_read_from_the_modes(bench: Bench) -> None:
    with pytest.raises(UnmeasuredError, match="adaptivespec_batch1"):
        adaptivespec_live.frontier(bench, "1")
    points = {
        m: {"speed": {"value": v}, "kept": k, "let_through": 0.1, "mean_log_ratio": 0.2}
        for m, v, k in (("0.9", 1.2, 1.0), ("0.8", 1.4, 0.94), ("0.6", 1.9, 0.92))
    }
    bench.rows = {"adaptivespec_batch1": row_of("adaptivespec_batch1", {"frontier": points})}
    result = adaptivespec_live.frontier(bench, "1")
    assert result.value == 1.4 and result.text == "1.40× at m = 0.8"


def test_final_answers_are_the_last_numbers(bench: Bench) -> None:
    texts = {(1,): "so 3 + 4 = 1,234.", (2,): "It is 1234", (3,): "none"}
    decode = SimpleNamespace(decode=lambda ids: texts[tuple(ids)])
    vars(bench)["server"] = SimpleNamespace(tokenizer=decode, close=lambda: None)
    assert adaptivespec_live.answer(bench, [1], "gsm8k") == "1234"
    assert adaptivespec_live.answer(bench, [2], "gsm8k") == "1234"
    assert adaptivespec_live.answer(bench, [3], "gsm8k") == (3,)
    assert adaptivespec_live.answer(bench, [2], "humaneval") == (2,)


def test_a_timed_controller_selects_where_its_own_does() -> None:
    from engine.protocol import Controller

    assert type(timed(registry.make("adaserve"))).select is not Controller.select
    assert type(timed(registry.make("chain"))).select is Controller.select
