"""What every `python -m benchmarks.<name>` does with its list of figures: choose, measure, show.

How a figure is measured stands in the module that the figure names; which figures there are and
what they promise stands in `spine.py` and `engine.py`.
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
from typing import TYPE_CHECKING, ClassVar, Literal

from benchmarks.figures import Figure, MissingHardwareError, Row, judged, unmeasured
from engine.errors import UserError
from train.command_line import nearest, parse

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.results import Results
    from benchmarks.show import Show

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class BenchmarkConfig:
    """Measure every figure, print each against its bar, write them as JSON.

    Use an otherwise idle machine. Rows of earlier runs stay in the file until measured again.
    """

    name: ClassVar[str] = "benchmark"

    check: bool = False
    """Exit 1 when a bar is missed or a figure unmeasured; missing hardware alone excuses one."""
    quick: bool = False
    """Shorter runs, every figure all the same."""
    only: tuple[str, ...] = ()
    """Figures to measure by name or beginning (acceptance, acceptance_gsm8k, batch8, …)."""
    out: Path | None = None
    """Results; none: benchmarks/results/NAME.json, or NAME-quick.json with --quick."""
    model: str = "smollm2-135m-instruct"
    """Target: a registered name or a folder in Hugging Face format."""
    draft_head: Path | None = None
    """EAGLE-3 checkpoint folder; none: the registered head of the model."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the networks compute. Auto: on a card where torch finds one, else on the processor."""
    dtype: str = "auto"
    """Auto, float32 or bfloat16."""
    prompts: Path | None = None
    """Folder of the prompt sets; none: prompts in $DRAFTGYM_SHARED, else ../shared/data/prompts."""

    @property
    def results(self) -> Path:
        """Where the results go."""
        name = f"{self.name}-quick.json" if self.quick else f"{self.name}.json"
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
    bench.unfinished = None if bench.quick else results.path.parent
    # Paths of the machine that measured say nothing elsewhere.
    command = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv]
    with show:
        for figure in chosen:
            show.begin(figure)
            row = measure(figure, bench)
            results.add(row, started, {"command": command, "versions": versions()})
            show.row(results.rows[figure.name])
    table = results.table(figures)
    show.end(table, {figure.name for figure in chosen}, results.path)
    return table


def new_bench(config: BenchmarkConfig) -> Bench:
    """The bench on the real model."""
    from benchmarks.bench import Bench, transformers_model
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
            LiveConfig(
                config.model, config.draft_head, config.dtype, threads=cores, device=config.device
            )
        )

    def load_prompts(name: str, server: LiveServer) -> list[list[int]]:
        if server.tokenizer is None:
            raise UserError(f"{config.model} has no tokenizer; expected a complete model folder")
        return PromptFolder(folder, server.tokenizer).ids(name)

    return Bench(
        load_server=load_server,
        load_prompts=load_prompts,
        load_transformers=lambda server: transformers_model(resolve(config.model), server),
        clones=Clones(ROOT, reuse=config.quick),
        quick=config.quick,
    )


def command(figures: Sequence[Figure], kind: type[BenchmarkConfig]) -> None:
    """Parse, measure, judge; exits 1 when `--check` asks and a figure does not pass."""
    config = parse(kind, sys.argv[1:], f"python -m benchmarks.{kind.name}")
    chosen = selected(figures, config.only)
    from benchmarks.results import Results
    from benchmarks.show import Show

    results = Results.load(config.results)
    with closing(new_bench(config)) as bench:
        table = run(chosen, figures, bench, results, Show.on_this_terminal())
    if config.check and not all(row.passes for row in table):
        sys.exit(1)
