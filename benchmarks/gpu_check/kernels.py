"""FlashInfer's kernels, compiled before anything is timed: no other section waits for it.

The first time it takes minutes and a compiler, later ones find the kernels in FlashInfer's cache.
"""

from __future__ import annotations

from time import perf_counter

from benchmarks.gpu_check.frame import Budget, Findings
from benchmarks.gpu_check.one_pass import run_once
from benchmarks.gpu_check.subject import LARGE, SMALL, Subject, heads_of
from models.flashinfer_attention import import_flashinfer


def kernels(subject: Subject, budget: Budget) -> Findings:
    """Of both pairs' shapes; wrong where FlashInfer does not run."""
    if subject.device.type == "cpu":
        return Findings("a processor has none")
    begun = perf_counter()
    if subject.lacking:
        return Findings("FlashInfer does not run here", wrong=[subject.lacking])
    table = [["heads, of keys and values, width", "seconds"]]
    for name in (SMALL, LARGE):
        heads = heads_of(name)
        run_once(import_flashinfer(), heads, subject.dtype, subject.device)
        table.append([", ".join(map(str, heads)), f"{perf_counter() - begun:.1f}"])
        begun = perf_counter()
    return Findings("planned, appended and run once, with a mask and without", table)
