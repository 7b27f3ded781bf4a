"""The command that measures this machine: arguments, progress, a table of what came out.

Light on imports: torch and scipy come in when there is something to measure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from engine.errors import UserError
from engine.profile.hardware_profile import HardwareProfile

DEFAULT_MODEL = "smollm2-135m-instruct"
# Loading, warming up and fitting come on top: about twenty seconds on two cores.
BUDGET_S, QUICK_BUDGET_S = 200.0, 25.0
ROUNDS, QUICK_ROUNDS = 12, 6
SEED = 0


def main(argv: Sequence[str]) -> int:
    """Measure, fit, store, tell, or only tell of published profiles.

    Exit code 0, 2 with one sentence on stderr, 130 on Ctrl-C.
    """
    options = parser().parse_args(argv)
    try:
        if options.list or options.show is not None:
            tell_published(options.show)
            return 0
        profile = measure_machine(options)
        places = [profile.save()]
        if options.out is not None:
            places.append(profile.save(options.out))
        show(profile, places)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; an earlier profile was left as it was", file=sys.stderr)
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = _Parser(
        prog="python -m engine.profile",
        description="Measure what draft, verify and prefill passes cost on this machine, fit the "
        "cost model and store it in the cache ($DRAFTGYM_CACHE). Takes under five minutes; let "
        "nothing else run meanwhile.",
    )
    add = made.add_argument
    add("--model", default=DEFAULT_MODEL, help="registry name, folder or hub id (%(default)s)")
    add("--drafter", default="eagle3", help="eagle3, model or prompt-lookup (%(default)s)")
    add("--draft-head", type=Path, metavar="FOLDER", help="EAGLE-3 checkpoint of another head")
    add("--draft-model", metavar="NAME", help="for --drafter model: registry name, folder or id")
    add("--dtype", default="auto", help="auto, float32, bfloat16 or float64 (%(default)s)")
    add("--threads", type=int, default=0, help="cores for the networks, 0: all (%(default)s)")
    add("--device", default="auto", help="auto, cpu or cuda (%(default)s)")
    add("--attention", default="auto", help="auto, plain, flashinfer, interpreter (%(default)s)")
    add("--no-graphs", action="store_true", help="without CUDA graphs, where a card has them")
    add("--page-size", type=int, metavar="TOKENS", help="of a KV page; see docs/engine.md")
    add("--slots", type=int, default=16, help="largest batch to measure (%(default)s)")
    add("--out", type=Path, metavar="FILE", help="write the profile here too")
    add("--quick", action="store_true", help="fewer points, under a minute")
    add("--list", action="store_true", help="list the published profiles of other machines")
    add("--show", metavar="NAME", help="tell all of a published profile, or of one in a file")
    return made


def tell_published(name: str | None) -> None:
    """The published profile of that name in full, or a list of all; raises UserError for none."""
    from engine.profile.published import command as published

    if name is None:
        published.list_all()
    else:
        published.show(name)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, as every command here does."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"error: {message} ({self.prog} --help shows all options)\n")


def measure_machine(options: argparse.Namespace) -> HardwareProfile:
    """The profile of this machine with the model that the options name; raises UserError."""
    if options.slots < 1:
        raise UserError(f"--slots {options.slots}: expected a number of at least 1")
    if options.threads < 0:
        raise UserError(f"--threads {options.threads}: expected 0 for all cores, or a number")
    if options.out is not None and options.out.is_dir():
        raise UserError(f"--out {options.out} is a folder; name a file in it")
    from engine.profile.live import profile_server
    from engine.serving import LiveConfig, LiveServer

    with progress_bar("Loading") as update:
        config = LiveConfig(
            model=options.model,
            draft_head=options.draft_head,
            dtype=options.dtype,
            slots=options.slots,
            threads=options.threads,
            drafter=options.drafter,
            draft_model=options.draft_model,
            device=options.device,
            attention=options.attention,
            page_size=options.page_size,
            graphs=not options.no_graphs,
        )
        server = LiveServer.load(config)
        update(1.0)
    rounds, budget_s = (QUICK_ROUNDS, QUICK_BUDGET_S) if options.quick else (ROUNDS, BUDGET_S)
    with closing(server), progress_bar("Measuring") as update:
        return profile_server(server, options.quick, rounds, budget_s, SEED, update)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Yield `update(share_done)`; on a pipe there is one plain line instead of a bar."""
    if not sys.stderr.isatty():
        print(label, file=sys.stderr, flush=True)
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<10}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda done: bar.update(task, completed=done)


def show(profile: HardwareProfile, places: Sequence[Path]) -> None:
    """Print what was found, how sure it is, and where it lies."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    print_line = console.print
    of = profile.identity
    print_line(f"machine     {of.machine}")
    computing = f"{of.threads} threads" if of.device == "cpu" else of.device
    pages = "one page a request" if of.page_size is None else f"pages of {of.page_size} tokens"
    print_line(
        f"model       {of.model} ({of.dtype}, {computing}, attention {of.attention}, {pages})"
    )
    print_line(f"drafter     {of.drafter}, network {of.network}")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("pass", "form", "points", "held out", "error", "p95", "noise", "p95"):
        table.add_column(heading, justify="left" if heading in ("pass", "form") else "right")
    for name, fitted in profile.fits.items():
        shares = fitted.error_median, fitted.error_p95, fitted.noise_median, fitted.noise_p95
        counts = str(fitted.points), str(fitted.held_out)
        table.add_row(name, fitted.form, *counts, *(f"{share:.1%}" for share in shares))
    console.print(table)
    kv = profile.context_tokens
    tokens = (1, 4, 16, 64)
    verify = "  ".join(f"{n}: {1e3 * float(profile.verify_s(n, kv)):.1f} ms" for n in tokens)
    print_line(f"verify      {verify} (tokens, batch 1, {kv:.0f} tokens of context)")
    drafts = "  ".join(f"{n}: {1e3 * float(profile.draft_next(n, kv)):.1f} ms" for n in (1, 8, 64))
    print_line(f"draft step  {drafts} (rows)")
    chunks = "  ".join(
        f"{before}: {1e3 * float(profile.prefill_s(64, before, False)):.1f} ms"
        for before in (0, 256, 768)
    )
    print_line(f"prefill     {chunks} (tokens before a chunk of 64)")
    budgets = "  ".join(f"{m}×: {profile.node_budget(m)}" for m in (1.25, 1.5, 2, 3))
    print_line(f"budget      {budgets} (verified tokens within so many one-token steps)")
    source = "measured" if profile.power.is_measured else "modelled, no counter can be read here"
    low, high = min(profile.power.watts), max(profile.power.watts)
    print_line(f"power       {low:.0f} to {high:.0f} W ({source})")
    memory = profile.memory
    print_line(
        f"memory      weights read per token {memory.weight_bytes / 2**20:.0f} MiB, KV "
        f"{memory.kv_bytes_per_token / 1024:.0f} KiB a token, process "
        f"{memory.resident_bytes / 2**20:.0f} MiB"
    )
    for place in places:
        print_line(f"profile     {place}")
