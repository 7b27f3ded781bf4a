"""Both pairs loaded, captured and warmed up ahead, so that no other section's time goes to that."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import torch

from benchmarks.gpu_check.frame import Budget, Findings
from benchmarks.gpu_check.parity import FORMATS
from benchmarks.gpu_check.subject import Subject
from models.random_weights import CPU


def servers(subject: Subject, budget: Budget) -> Findings:
    """All that the sections to come ask for; what is cut here they make themselves."""
    table = [["pair", "format", "on", "seconds"]]
    for size, dtype, device in dict.fromkeys(wanted(subject)):
        name = str(dtype).removeprefix("torch.")
        if not budget.allows(f"the {size} pair in {name} on {device.type}"):
            continue
        begun = perf_counter()
        subject.server(size, dtype, device)
        table.append([size, name, device.type, f"{perf_counter() - begun:.1f}"])
    return Findings(f"{len(table) - 1} servers made", table)


def wanted(subject: Subject) -> Iterator[tuple[str, torch.dtype, torch.device]]:
    """Sizes, formats and devices, the most wanted first."""
    for size in ("small", "large"):
        if size in subject.makes:
            yield size, subject.dtype, subject.device
    if "reference" in subject.makes:
        for dtype in FORMATS:
            yield "small", dtype, subject.device
            yield "small", dtype, CPU
