"""Measure every figure that the spine promises: `python -m benchmarks.spine --help` says how.

The list of figures and the command; how each is measured stands in the module that it names.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.figures import (
    Bar,
    Figure,
    MissingHardwareError,
    Row,
    judged,
    unmeasured,
)
from engine.errors import UserError
from train.command_line import nearest, parse, run_command

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.results import Results
    from benchmarks.show import Show

ROOT = Path(__file__).resolve().parents[1]
SETS = "gsm8k humaneval"  # maths and coding
MEASURED_SETS = {
    "gsm8k": ("GSM8K", Bar("≥", 3.1)),
    "humaneval": ("HumanEval", Bar("≥", 2.6)),
    "mt_bench": ("MT-bench", Bar("≥", 2.2)),
    "alpaca": ("Alpaca", Bar("≥", 2.2)),
    "summarization": ("summarization", None),
}
ALL_SETS = " ".join(f"acceptance_{name}" for name in MEASURED_SETS)

FIGURES: tuple[Figure, ...] = (
    Figure(
        "make_train",
        "make train in a fresh clone",
        Bar("<", 12, "min"),
        "benchmarks.fresh_clone:make_train",
    ),
    Figure(
        "make_test",
        "make test in a fresh clone",
        Bar("<", 8, "min"),
        "benchmarks.fresh_clone:make_test",
    ),
    *(
        Figure(
            f"acceptance_{name}",
            f"tokens per iteration, {title}",
            bar,
            "benchmarks.acceptance:measure",
            name,
        )
        for name, (title, bar) in MEASURED_SETS.items()
    ),
    Figure(
        "acceptance_average",
        "tokens per iteration, average of the five",
        Bar("≥", 2.4),
        "benchmarks.acceptance:average",
        ALL_SETS,
    ),
    Figure(
        "batch1",
        "batch 1: best fixed tree ÷ autoregressive",
        Bar("≥", 1.4),
        "benchmarks.speed:batch1",
        SETS,
    ),
    Figure(
        "transformers",
        "batch 1: autoregressive ÷ transformers generate",
        Bar("≥", 1.5),
        "benchmarks.speed:transformers",
        SETS,
    ),
    Figure(
        "batch8",
        "batch 8: best fixed tree ÷ autoregressive",
        Bar("≥", 1.2),
        "benchmarks.speed:batch8",
        SETS,
    ),
    Figure(
        "draft_step",
        "draft step, batch 1",
        Bar("≤", 2.5, "ms", "≤ 7 % of a one-token target step"),
        "benchmarks.overhead:draft_step",
        "gsm8k",
    ),
    Figure(
        "overhead",
        "engine's own work outside the networks, batch 16",
        Bar("≤", 5, "%"),
        "benchmarks.overhead:overhead",
        SETS,
    ),
)


@dataclass(frozen=True)
class SpineConfig:
    """Measure every figure of the spine, print each against its bar, write them as JSON.

    Use an otherwise idle machine. Rows of earlier runs stay in the file until measured again.
    """

    check: bool = False
    """Exit 1 when a bar is missed or a figure unmeasured; missing hardware alone excuses one."""
    quick: bool = False
    """Shorter runs, every figure all the same."""
    only: tuple[str, ...] = ()
    """Figures to measure by name or beginning (acceptance, acceptance_gsm8k, batch8, …)."""
    out: Path | None = None
    """Results; none: benchmarks/results/spine.json, or spine-quick.json with --quick."""
    model: str = "smollm2-135m-instruct"
    """Target: a registered name or a folder in Hugging Face format."""
    draft_head: Path | None = None
    """EAGLE-3 checkpoint folder; none: the registered head of the model."""
    dtype: str = "auto"
    """Auto, float32 or bfloat16."""
    prompts: Path | None = None
    """Folder of the prompt sets; none: prompts in $DRAFTGYM_SHARED, else ../shared/data/prompts."""

    @property
    def results(self) -> Path:
        """Where the results go."""
        name = "spine-quick.json" if self.quick else "spine.json"
        return self.out or ROOT / "benchmarks" / "results" / name


def selected(figures: Sequence[Figure], only: Sequence[str]) -> list[Figure]:
    """Figures whose name is given or begins with what is given; all when nothing is given."""
    chosen: set[str] = set()
    for word in only:
        fitting = {f.name for f in figures if f.name == word or f.name.startswith(f"{word}_")}
        if not fitting:
            known = [f.name for f in figures]
            raise UserError(f"--only {word}: no figure of that name; {nearest(word, known)}")
        chosen |= fitting
    if any(name.startswith("acceptance_") for name in chosen):
        chosen.add("acceptance_average")  # costs nothing and would be out of date
    return [f for f in figures if not only or f.name in chosen]


def measure(figure: Figure, bench: Bench) -> Row:
    """Measure one figure; what keeps it from being measured becomes its row."""
    module, function = figure.measure.split(":")
    call: Callable[..., object] = getattr(importlib.import_module(module), function)
    begun = perf_counter()
    try:
        row = judged(figure, call(bench, figure.argument))  # type: ignore[arg-type]
    except MissingHardwareError as lack:
        row = unmeasured(figure, str(lack), excused=True)
    except UserError as error:
        row = unmeasured(figure, str(error))
    return dataclasses.replace(row, seconds=perf_counter() - begun, quick=bench.quick)


def run(
    chosen: Sequence[Figure], figures: Sequence[Figure], bench: Bench, results: Results, show: Show
) -> list[Row]:
    """Measure the chosen figures in order, saving and showing each; the whole table."""
    from eval.versions import versions

    started = datetime.now(UTC).isoformat(timespec="seconds")
    bench.rows, bench.say = results.rows, show.progress
    command = [Path(sys.argv[0]).name, *sys.argv[1:]]
    with show:
        for figure in chosen:
            show.begin(figure)
            row = measure(figure, bench)
            results.add(row, started, {"command": command, "versions": versions()})
            show.row(results.rows[figure.name])
    table = results.table(figures)
    show.end(table, {figure.name for figure in chosen}, results.path)
    return table


def new_bench(config: SpineConfig) -> Bench:
    """The bench on the real model."""
    from benchmarks.bench import Bench, transformers_reference
    from benchmarks.fresh_clone import Clones
    from benchmarks.prompts import PromptFolder
    from engine.serving import LiveConfig, LiveServer
    from models.registry import resolve

    shared = Path(os.environ.get("DRAFTGYM_SHARED") or ROOT.parent / "shared" / "data")
    folder = config.prompts or shared / "prompts"

    def load_server() -> LiveServer:
        cores = os.cpu_count() or 1
        if hasattr(os, "sched_getaffinity"):
            cores = len(os.sched_getaffinity(0))
        return LiveServer.load(
            LiveConfig(config.model, config.draft_head, dtype=config.dtype, threads=cores)
        )

    def load_prompts(name: str, server: LiveServer) -> list[list[int]]:
        if server.tokenizer is None:
            raise UserError(f"{config.model} has no tokenizer; expected a complete model folder")
        return PromptFolder(folder, server.tokenizer).ids(name)

    return Bench(
        load_server=load_server,
        load_prompts=load_prompts,
        load_reference=lambda server: transformers_reference(resolve(config.model), server),
        clones=Clones(ROOT, reuse=config.quick),
        quick=config.quick,
    )


def main() -> None:
    """Parse, measure, judge."""
    config = parse(SpineConfig, sys.argv[1:], "python -m benchmarks.spine")
    chosen = selected(FIGURES, config.only)
    from benchmarks.results import Results
    from benchmarks.show import Show

    results = Results.load(config.results)
    bench = new_bench(config)
    with closing(bench.clones):
        table = run(chosen, FIGURES, bench, results, Show.on_this_terminal())
    if config.check and not all(row.passes for row in table):
        sys.exit(1)


if __name__ == "__main__":
    run_command(main)
