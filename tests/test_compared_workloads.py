"""What a comparison serves: its time, its seeds, and what its table says of what was left out."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from engine.classes import DEFAULT_CLASSES
from engine.drawing import Draw
from engine.request import Request
from engine.tiny import tiny_server
from engine.workload import (
    Disturbance,
    DrawnDisturbance,
    Regime,
    Shifts,
    WorkloadConfig,
    draw_arrivals,
    draw_spans,
    episode_generator,
    workload,
)
from engine.workload.command import main
from engine.workload.unapplied import left_out
from eval import arrivals, oracle
from eval.compare import over
from eval.contenders import named
from eval.slug import slug
from train import evaluation
from train.config import Serving
from train.interrupt import StopRequest
from train.progress import ProgressLine

# -- its time --------------------------------------------------------------------------------------


def test_every_seed_of_a_long_trace_serves_another_piece(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    times_s = np.sort(np.random.default_rng(0).uniform(0.0, 5000.0, 2000))
    rows = "".join(f"{at_s},5,5\n" for at_s in [0.0, *times_s.tolist()])
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    config = over(workload(path), 60.0)
    drawn = [
        draw_arrivals(config, DEFAULT_CLASSES, 1.0, episode_generator(seed)).arrival_s.tolist()
        for seed in range(1000, 1004)
    ]
    assert all(drawn[0] != other for other in drawn[1:])
    # A trace that the run outlasts is served as it was asked for.
    short = replace(workload(path), duration_s=50.0)
    assert over(short, 60.0) == short


def test_stated_regimes_are_cut_and_never_lengthened() -> None:
    config = WorkloadConfig(regimes=(Regime(40.0, 1.0), Regime(20.0, 0.5)), duration_s=60.0)
    assert over(config, 180.0) == config  # evaluate.py --seconds 300
    assert over(config, 30.0).duration_s == 30.0


def test_drawn_regimes_are_shortened_and_a_plain_load_fills_the_run() -> None:
    shifts = over(workload("shifting"), 30.0).shifts
    assert shifts is not None and shifts.duration_s == (10.0, 20.0)
    assert over(workload("shifting"), 300.0).shifts == workload("shifting").shifts
    assert over(workload("steady"), 300.0).duration_s == 300.0


# -- its seeds -------------------------------------------------------------------------------------


def test_a_seed_is_one_episode_wherever_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = workload("shifting")
    served: list[Request] = []

    def draw(generator: np.random.Generator) -> list[Request]:
        found = draw_arrivals(config, DEFAULT_CLASSES, 1.0, generator)
        pairs = zip(found.slo_class.tolist(), found.arrival_s.tolist(), strict=True)
        return [Request(i, c, [1], 2, at_s) for i, (c, at_s) in enumerate(pairs)]

    (episode,) = arrivals.held_out(draw, 1)
    served = episode.requests()
    assert episode.seed == 1000 and served == episode.requests()
    spans = draw_spans(config, DEFAULT_CLASSES, 1.0, episode_generator(1000))
    stretches = oracle.stretches(config, DEFAULT_CLASSES, 1000, 20.0)
    assert [s.start_s for s in stretches] == [s.start_s for s in spans]
    assert main(["shifting", "--seed", "1000"]) == 0
    counts = np.bincount([request.slo_class for request in served])
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = {words[0]: words[1] for words in printed if words and words[0] in {"coding", "chat"}}
    assert shown == {"coding": str(counts[0]), "chat": str(counts[1])}


@pytest.mark.parametrize("seed", [0, 1000, 1019])
def test_no_generator_of_one_number_draws_a_seeds_episode(seed: int) -> None:
    plain = np.random.default_rng(seed).integers(0, 2**62, 4)
    assert plain.tolist() != episode_generator(seed).integers(0, 2**62, 4).tolist()


# -- its notes -------------------------------------------------------------------------------------


def test_what_is_drawn_and_not_applied_is_said() -> None:
    assert left_out(workload("steady"), "live") == left_out(workload("steady"), "replay") == ""
    assert left_out(workload("shifting"), "replay") == ""
    assert left_out(workload("shifting"), "live").startswith("acceptance factors above 1")
    assert left_out(WorkloadConfig(shifts=Shifts()), "replay") == ""
    bursts = WorkloadConfig(load=1.0, disturbances=(Disturbance("burst", 0.0, 9.0, 2.0),))
    assert left_out(bursts, "replay") == ""  # it is in the arrivals
    pressed = WorkloadConfig(
        regimes=(Regime(200.0, 1.0, draft_time=0.5),),
        drawn_disturbances=(
            DrawnDisturbance("power_cap", (0.0, 1.0), (1.0, 2.0), (0.5, 0.9)),
            DrawnDisturbance("memory", (0.0, 1.0), (1.0, 2.0), (0.5, 0.9), probability=0.0),
        ),
    )
    assert left_out(pressed, "replay") == ""
    long = WorkloadConfig(load=1.0, disturbances=(Disturbance("prompt_length", 0.0, 9.0, 2.0),))
    assert left_out(long, "replay").startswith("prompt lengths change as far as recorded prompts")
    assert left_out(long, "live") == ""
    assert "below 1" in left_out(pressed, "live") and "not enforced" in left_out(pressed, "live")


def compared(
    monkeypatch: pytest.MonkeyPatch, name: str, seconds: float
) -> tuple[str, list[float | None]]:
    """What a comparison of two controllers over two seeds prints, and the times left it told."""
    left: list[float | None] = []

    def draw(*_: object, **__: object) -> Draw:
        return lambda rng: [Request(i, 0, [1 + i], 4, 0.0) for i in range(2)]

    def update(self: object, done: float, *parts: str, left_s: float | None = None) -> None:
        left.append(left_s)

    monkeypatch.setattr(evaluation, "drawing", draw)
    monkeypatch.setattr(ProgressLine, "update", update)
    console = Console(file=io.StringIO(), width=160)
    with StopRequest() as stop:
        report = evaluation.compare(
            tiny_server(), Serving("live", workload=name), named(["autoregressive", "chain(2)"]),
            "autoregressive", 2, seconds, np.random.default_rng(0), console, stop,
        )  # fmt: skip
    evaluation.show(report, console)
    return console.file.getvalue(), left  # type: ignore[attr-defined]


def test_the_table_says_it_and_the_time_left_is_wall_time(monkeypatch: pytest.MonkeyPatch) -> None:
    printed, left = compared(monkeypatch, "shifting", 100_000.0)
    assert "acceptance factors above 1 are drawn and not applied on live" in printed
    assert "this machine offers no reading" in printed or "energy is measured" in printed
    # Runs over in no time: engine seconds would promise 100,000 s for each.
    assert left[:2] == [None, None] and all(s is not None and s < 1000.0 for s in left[2:4])
    steady, _ = compared(monkeypatch, "steady", 10.0)
    assert "not applied" not in steady


# -- names of its folders --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("shifting", "shifting"),
        ("../../lunch", "lunch"),
        ("azure-code:../data/azure2023#part/1.5", "azure-code-..-data-azure2023-part-1.5"),
        ("chain(2)", "chain-2"),
        ("..", "unnamed"),
    ],
)
def test_a_slug_is_one_part_of_a_path(name: str, folder: str) -> None:
    assert slug(name) == folder
    assert len(Path(folder).parts) == 1
