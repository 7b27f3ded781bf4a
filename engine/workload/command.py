"""The command that describes a workload: arguments and a table of what one episode brings.

Light on imports: rich comes in when there is something to print.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable, SLOClass
from engine.errors import UserError
from engine.workload.config import WorkloadConfig
from engine.workload.describe import PERCENTILES, Lengths, Summary, summarize
from engine.workload.episode import Arrivals, draw_arrivals
from engine.workload.presets import PRESETS, workload
from engine.workload.seeds import episode_generator
from engine.workload.traces import READERS, ArrivalSource

BARS = " ▁▂▃▄▅▆▇█"


def main(argv: Sequence[str]) -> int:
    """Draw, summarize, print; exit code 0, or 2 with one sentence on stderr."""
    options = parser().parse_args(argv)
    try:
        config = described_config(options)
        source = None if config.trace is None else config.trace.load()
        classes = classes_for(config, source)
        generator = episode_generator(options.seed)
        arrivals = draw_arrivals(config, classes, options.capacity_rps, generator, source)
        show(config, arrivals, summarize(arrivals, classes.names), options)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    readers = "\n".join(f"  {name:<22}{reader.summary}" for name, reader in READERS.items())
    made = _Parser(
        prog="python -m engine.workload",
        description="Describe a workload: who arrives, how fast, how bursty, how long.",
        epilog=f"traces, as NAME:PATH or NAME:PATH#PART:\n{readers}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("workload", help=f"{', '.join(PRESETS)}, a .toml or .csv file, or a trace as NAME:PATH")
    add("--capacity-rps", type=float, default=1.0, help="what loads multiply (%(default)s)")
    add("--load", type=float, help="mean rate in multiples of capacity")
    add("--rate-rps", type=float, help="mean rate in requests per second")
    add("--start-s", type=float, help="of a trace: where the window begins")
    add("--length-s", type=float, help="of a trace: how long the window is")
    add("--duration-s", type=float, help="when arrivals stop")
    add("--seed", type=int, default=0, help="of what is drawn (%(default)s)")
    return made


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, as every command here does."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"error: {message} ({self.prog} --help shows all options)\n")


def described_config(options: argparse.Namespace) -> WorkloadConfig:
    """The workload that the options name; raises UserError."""
    if options.seed < 0:
        raise UserError(f"--seed {options.seed}: expected a number from 0")
    config = workload(
        options.workload,
        load=options.load,
        rate_rps=options.rate_rps,
        duration_s=options.duration_s,
    )
    window = {"start_s": options.start_s, "length_s": options.length_s}
    given = {name: value for name, value in window.items() if value is not None}
    if not given:
        return config
    if config.trace is None:
        flag = f"--{next(iter(given)).replace('_', '-')}"
        raise UserError(f"{flag}: {options.workload} is no trace; leave it out or name one")
    return replace(config, trace=replace(config.trace, **given))


def classes_for(config: WorkloadConfig, source: ArrivalSource | None) -> ClassTable:
    """The default classes, and whatever others a workload names, so that any can be described."""
    theirs = getattr(source, "class_names", ())
    mapped = config.trace.classes if config.trace is not None else {}
    names = [mapped.get(name, name) for name in theirs]
    names += [*config.mix, *config.peaks]
    names += [name for regime in config.regimes for name in regime.mix]
    extra = dict.fromkeys(name for name in names if name not in DEFAULT_CLASSES.names)
    if not extra:
        return DEFAULT_CLASSES
    known = () if theirs and not config.mix else DEFAULT_CLASSES.classes
    kept = [c for c in DEFAULT_CLASSES.classes if c in known or c.name in names]
    return ClassTable((*kept, *(SLOClass(name, math.inf) for name in extra)))


def show(
    config: WorkloadConfig, arrivals: Arrivals, summary: Summary, options: argparse.Namespace
) -> None:
    """Print the tables and what stands around them."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)

    def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        made = Table(box=None, padding=(0, 2, 0, 0))
        for i, heading in enumerate(headings):
            made.add_column(heading, justify="right" if i else "left", no_wrap=True)
        for row in rows:
            made.add_row(*row)
        console.print(made)

    title = f"{config.name} · seed {options.seed} · {summary.duration_s:,.1f} s"
    console.print(title, markup=False)
    table(
        ("class", "requests", "share", "rate/s", "cv of gaps"),
        [
            (c.name, f"{c.requests:,}", f"{c.share:.1%}", f"{c.rate_rps:.3g}", _number(c.cv))
            for c in summary.classes
        ],
    )
    tails = [f"p{p}" for p in PERCENTILES]
    rows = [
        (c.name, *_tokens(c.prompt), *_tokens(c.output))
        for c in summary.classes
        if c.prompt is not None and c.output is not None
    ]
    if rows:
        table(("tokens", "prompt", *tails, "output", *tails), rows)
    else:
        console.print(
            f"lengths: prompts as they are, up to {config.prompt_tokens} tokens; outputs "
            f"{math.ceil(config.max_tokens / 2)} to {config.max_tokens}"
        )
    console.print(
        f"busiest second {summary.busiest_s} requests · variance over mean in 10 s "
        f"{_number(summary.dispersion)} (Poisson: 1)"
    )
    top = float(summary.rates_rps.max())
    steps = np.ceil(summary.rates_rps / (top or 1.0) * (len(BARS) - 1)).astype(int)
    console.print(f"rate over time {''.join(BARS[i] for i in steps)} up to {top:.3g}/s")
    if arrivals.left_out:
        console.print(f"left out: {arrivals.left_out} requests without prompt or output tokens")
    for fault in arrivals.disturbances.of:
        of_class = f" {fault.slo_class}" if fault.slo_class else ""
        console.print(
            f"disturbance {fault.kind}{of_class} {fault.value:.3g} from {fault.start_s:.1f} to "
            f"{fault.end_s:.1f} s",
            markup=False,
        )


def _tokens(lengths: Lengths) -> list[str]:
    """Mean and percentiles."""
    return [f"{value:,.0f}" for value in (lengths.mean, *lengths.percentiles)]


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
