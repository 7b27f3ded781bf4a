"""Commands of the checkout, each in a process, one beside another on cores of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from benchmarks.bench import Bench
from benchmarks.command import ROOT
from benchmarks.figures import UnmeasuredError
from benchmarks.replay_training import CORES

STOPPING_S = 60.0
"""A process that is asked to end may take so long to save what it has."""
POLL_S = 1.0
ON_CORES = (
    "import os, sys; c = {cores}; c and os.sched_setaffinity(0, c); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
Watch = Callable[[Path], None]


def unwatched(_: Path) -> None:
    """Nobody looks on."""


class Job(NamedTuple):
    """A command's words, the folder that it makes, and what is said of it meanwhile."""

    words: Sequence[str]
    folder: Path
    doing: str
    watch: Watch = unwatched
    """Handed the folder about once a second while the command runs, and once after."""


def side_by_side(bench: Bench, jobs: Sequence[Job], lanes: int) -> None:
    """Run the jobs to their ends on two cores, so many at a time, the cores dealt out among them.

    The output of each goes beside its folder. Asked to stop, all are given time to save. Raises
    UnmeasuredError with the last line of one that fails, after the others were stopped.
    """
    allowed = sorted(os.sched_getaffinity(0))[:CORES] if hasattr(os, "sched_getaffinity") else []
    free = [allowed[lane::lanes] for lane in range(lanes)]
    left, begun = list(jobs), perf_counter()
    running: list[tuple[Job, subprocess.Popen[bytes], list[int]]] = []
    with ExitStack() as ends:
        while left or running:
            while left and free:
                job, cores = left.pop(0), free.pop()
                running.append((job, ends.enter_context(_started(job, cores)), cores))
            minutes = (perf_counter() - begun) / 60
            bench.say(f"{', '.join(job.doing for job, *_ in running)}: {minutes:.1f} minutes")
            _wait(running[0][1])
            for job, process, cores in list(running):
                ended = process.poll() is not None
                job.watch(job.folder)
                if ended:
                    _check(job, process)
                    running.remove((job, process, cores))
                    free.append(cores)


@contextmanager
def _started(job: Job, cores: list[int]) -> Iterator[subprocess.Popen[bytes]]:
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", ON_CORES.format(cores=cores), *job.words]
    with _log(job).open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            if process.poll() is None:  # we are interrupted, or another one failed
                process.terminate()
                try:
                    process.wait(STOPPING_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=POLL_S)
    except subprocess.TimeoutExpired:
        return


def _check(job: Job, process: subprocess.Popen[bytes]) -> None:
    if process.returncode:
        said = _log(job).read_text("utf-8", "replace").strip().splitlines()
        raise UnmeasuredError(f"{job.words[0]} failed: {(said or ['nothing was said'])[-1]}")


def _log(job: Job) -> Path:
    return job.folder.with_name(f"{job.folder.name}.log")
