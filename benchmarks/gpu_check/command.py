"""The command: which sections there are, on which device, where the report goes, the exit code.

Light on imports, since `--help` reads it.
"""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from engine.errors import UserError
from train.command_line import nearest, parse

if TYPE_CHECKING:
    from benchmarks.gpu_check.frame import Budget, Done, Findings, Section
    from benchmarks.gpu_check.subject import Subject

    Run = Callable[[Subject, Budget], Findings]

ROOT = Path(__file__).resolve().parents[2]


class Listed(NamedTuple):
    """A section by the module and function that run it, imported when it is wanted."""

    name: str
    title: str
    budget_s: float
    run: str
    servers: tuple[str, ...] = ("small",)
    """What `servers` makes for it: small, large, reference."""


# On a card they come to 590 seconds at most, apart from the compiling.
SECTIONS = (
    Listed("kernels", "FlashInfer's kernels", float("inf"), "kernels:kernels", ()),
    Listed("servers", "Servers", 95, "servers:servers", ()),
    Listed(
        "parity",
        "Logits, attention and text against the CPU",
        45,
        "parity:parity",
        ("small", "reference"),
    ),
    Listed("lossless", "Text under random plans", 45, "lossless:lossless", ("small", "reference")),
    Listed("graphs", "Graphs captured and replayed", 30, "graphs:graphs"),
    Listed("bandwidth", "Achieved bandwidth", 25, "bandwidth:bandwidth", ("small", "large")),
    Listed("profile", "What steps cost", 60, "profiling:profile"),
    Listed("small", "Throughput of the small pair", 65, "throughput:small"),
    Listed("large", "Throughput of the large pair", 85, "throughput:large", ("large",)),
    # Last, since training closes the server.
    Listed("learning", "Two minutes of PPO in the live environment", 140, "learning:learning"),
)
AHEAD = ("kernels", "servers")  # whatever is chosen


@dataclass(frozen=True)
class CheckConfig:
    """Check everything that only a card can tell, and write it down; needs no network.

    Takes under ten minutes on an H200, once FlashInfer has compiled its kernels. Exits 1 when
    something does not hold, 2 without a card.
    """

    report: Path = Path("docs/results/gpu.md")
    """The page to write."""
    device: Literal["auto", "cuda", "cpu"] = "auto"
    """Auto: the first card. The CPU runs every section too, with --tiny."""
    tiny: bool = False
    """Tiny networks in place of both pairs, for trying the check itself."""
    only: tuple[str, ...] = ()
    """Sections to run besides kernels and servers: parity, lossless, graphs, bandwidth, profile,
    small, large, learning."""
    seconds: float = 590.0
    """Time for all sections but kernels; what it does not suffice for is cut, and said."""

    def check(self) -> None:
        """Raise UserError for what cannot be meant."""
        if self.device == "cpu" and not self.tiny:
            raise UserError("--device cpu: a processor takes hours for this; add --tiny")
        if self.tiny and self.device != "cpu":
            raise UserError("--tiny: these networks only try the check itself; add --device cpu")
        if not self.seconds > 0:
            raise UserError(f"--seconds {self.seconds}: expected a number above 0")
        if self.report.is_dir():
            raise UserError(f"--report {self.report} is a folder; name a file in it")
        names = [section.name for section in SECTIONS]
        for name in self.only:
            if name not in names:
                raise UserError(f"--only {name}: no section of that name; {nearest(name, names)}")


def main() -> None:
    """Parse, run all sections, write the page; exits 1 when one does not hold."""
    config = parse(CheckConfig, sys.argv[1:], "python -m benchmarks.gpu_check")
    config.check()
    done = check(config)
    if not all(one.passes for one in done):
        sys.exit(1)


def check(config: CheckConfig) -> list[Done]:
    """The sections as they went; the page stands where it should. Raises UserError."""
    import torch

    from benchmarks.gpu_check.frame import run_sections
    from benchmarks.gpu_check.report import page
    from benchmarks.gpu_check.subject import Subject
    from engine.atomic_write import write_named

    if config.device != "cpu" and not torch.cuda.is_available():
        raise UserError(
            "there is no CUDA card here; run this on a machine with one, or try the check itself "
            "with --device cpu --tiny"
        )
    device = torch.device("cpu") if config.device == "cpu" else torch.device("cuda", 0)
    begun = perf_counter()
    chosen = [listed for listed in SECTIONS if not config.only or listed.name in config.only]
    makes = frozenset(server for listed in chosen for server in listed.servers)
    with closing(Subject(device, config.tiny, config.report.parent, makes)) as subject:
        done = run_sections(sections(config.only), subject, config.seconds, _begin, _ended)
        command = shlex.join(["python", "-m", "benchmarks.gpu_check", *sys.argv[1:]])
        write_named(config.report, page(done, subject, command, perf_counter() - begun))
    print(f"report {config.report}")
    return done


def sections(only: tuple[str, ...] = ()) -> list[Section]:
    """The chosen sections in their order, all when none is named, and what goes ahead of them."""
    from benchmarks.gpu_check.frame import Section

    chosen = [listed for listed in SECTIONS if not only or listed.name in (*AHEAD, *only)]
    return [Section(one.name, one.title, one.budget_s, _function(one.run)) for one in chosen]


def _function(place: str) -> Run:
    """Calls a function of this package, whose module is imported by the first call."""
    module, name = place.split(":")

    def run(subject: Subject, budget: Budget) -> Findings:
        found: Run = getattr(importlib.import_module(f"benchmarks.gpu_check.{module}"), name)
        return found(subject, budget)

    return run


def _begin(section: Section) -> None:
    print(f"{section.title} …", file=sys.stderr, flush=True)


def _ended(done: Done) -> None:
    result = "holds" if done.passes else "does not hold"
    cut = f", left out: {'; '.join(done.cut)}" if done.cut else ""
    print(f"{done.section.title}: {result}, {done.seconds:.0f} s{cut}", flush=True)
    for line in done.findings.wrong:
        print(f"  {line}", flush=True)
