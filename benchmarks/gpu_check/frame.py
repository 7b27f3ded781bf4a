"""How a check is made of sections: each in its time, each reported, none stopping the others.

What a section finds out is its own; how findings become a page is report.py's.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.gpu_check.subject import Subject

OVERRUN = 1.1  # times its budget; a part that is under way is brought to its end


@dataclass
class Budget:
    """Seconds that a section may take, and what it left out to keep to them."""

    seconds: float
    clock: Callable[[], float] = perf_counter
    cut: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begun = self.clock()

    @property
    def left_s(self) -> float:
        """Never below 0."""
        return max(0.0, self.begun + self.seconds - self.clock())

    def allows(self, what: str) -> bool:
        """Whether there is time for `what`, which is noted as cut where there is not."""
        if self.left_s > 0:
            return True
        self.cut.append(what)
        return False


@dataclass
class Findings:
    """What a section found: a sentence, a table in Markdown, and what is wrong."""

    summary: str
    table: list[list[str]] = field(default_factory=list)
    """Heads first; every row has as many cells."""
    wrong: list[str] = field(default_factory=list)
    """Why the section does not pass; empty where it does."""


def failing_drafter(failures: int) -> list[str]:
    """What is wrong with an episode in which so many draft calls raised.

    Serving goes on without their drafts, so that neither text nor exit code tells of them.
    """
    return [f"{failures} draft calls raised (the log has the first)"] if failures else []


def reason(error: Exception) -> str:
    """What was raised, in a line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


@dataclass(frozen=True)
class Section:
    """One part of the check."""

    name: str
    title: str
    budget_s: float
    """Infinite where nothing bounds it; the total does not count such a section."""
    run: Callable[[Subject, Budget], Findings]


@dataclass(frozen=True)
class Done:
    """A section as it went."""

    section: Section
    findings: Findings
    seconds: float
    cut: list[str]
    trace: str = ""
    """Where it raised, if it did."""

    @property
    def passes(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings.wrong


def run_sections(
    sections: Sequence[Section],
    subject: Subject,
    total_s: float,
    begin: Callable[[Section], None] = lambda section: None,
    ended: Callable[[Done], None] = lambda done: None,
    clock: Callable[[], float] = perf_counter,
) -> list[Done]:
    """Run all within `total_s`; who raises is reported, and the next one goes on.

    A section that has more time than it needs leaves it to nobody: the sum of all is the promise.
    One that takes longer than it may does not pass, a last part brought to its end apart.
    """
    started, all_done = clock(), []
    for section in sections:
        left_s = started + total_s - clock()
        budget = Budget(min(section.budget_s, max(left_s, 0.0)), clock)
        begin(section)
        trace = ""
        if left_s <= 0:
            budget.cut.append("all of it")
            findings = Findings("not run", wrong=[f"the {total_s:.0f} s for all were over"])
        else:
            try:
                findings = section.run(subject, budget)
            except Exception as error:  # whatever a card does to one section, the others are run
                findings = Findings("failed", wrong=[reason(error)])
                trace = "".join(traceback.format_exception(error, limit=-8))
        seconds = clock() - budget.begun
        if seconds > OVERRUN * section.budget_s:
            findings.wrong.append(f"took {seconds:.0f} s where {section.budget_s:.0f} are meant")
        if math.isinf(section.budget_s):
            started += seconds
        done = Done(section, findings, seconds, budget.cut, trace)
        all_done.append(done)
        ended(done)
    return all_done
