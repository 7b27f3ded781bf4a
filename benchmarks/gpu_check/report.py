"""The check as a Markdown page: what ran where, what holds, what was cut, what went wrong."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import torch

from benchmarks.gpu_check.frame import Done
from benchmarks.gpu_check.subject import Subject
from eval.versions import versions

BESIDES = ("apache-tvm-ffi", "triton")
UNKNOWN = "unknown"


def page(done: Sequence[Done], subject: Subject, command: str, seconds: float) -> str:
    """The whole page."""
    failed = [one.section.title for one in done if not one.passes]
    verdict = "Everything holds." if not failed else f"Does not hold: {'; '.join(failed)}."
    lines = ["# The card, checked", ""]
    if subject.device.type == "cpu":
        lines += ["**On a processor, to try the check itself: no figure is a card's.**", ""]
    lines += [verdict, "", f"`{command}` took {seconds:.0f} s.", ""]
    lines += _table([["what", "which"], *([name, text] for name, text in machine(subject).items())])
    summary = [["section", "result", "seconds", "left out"]]
    for one in done:
        result = "holds" if one.passes else "does not hold"
        summary.append([one.section.title, result, f"{one.seconds:.0f}", "; ".join(one.cut) or "–"])
    lines += _table(summary)
    for one in done:
        lines += _section(one)
    return "\n".join(lines).rstrip() + "\n"


def machine(subject: Subject) -> dict[str, str]:
    """Card, driver, versions, and what was run on them."""
    stamp: dict[str, Any] = versions()
    hardware = stamp["hardware"]
    packages = {**stamp["packages"], **{name: _version(name) for name in BESIDES}}
    found = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "revision": stamp["revision"] or UNKNOWN,
        "card": "none",
        "processor": f"{hardware['processor']}, {hardware['cores']} cores",
        "system": platform.platform(),
        "python": stamp["python"],
        "packages": ", ".join(f"{n} {v}" for n, v in packages.items() if v is not None),
        "small pair": subject.names["small"],
        "large pair": subject.names["large"],
        "attention": subject.attention(subject.dtype, subject.device),
    }
    if subject.device.type == "cuda":
        card = torch.cuda.get_device_properties(subject.device)
        found["card"] = (
            f"{card.name}, {card.total_memory / 2**30:.0f} GiB, {card.multi_processor_count} "
            f"multiprocessors, compute capability {card.major}.{card.minor}"
        )
        found["driver"] = _driver()
        found["CUDA of torch"] = torch.version.cuda or UNKNOWN
        if subject.lacking:
            found["attention"] += f", since FlashInfer cannot be had: {subject.lacking}"
    return found


def _section(one: Done) -> list[str]:
    lines = [f"## {one.section.title}", "", one.findings.summary, ""]
    if len(one.findings.table) > 1:
        lines += _table(one.findings.table)
    if one.cut:
        lines += [f"Left out to keep to {one.section.budget_s:.0f} s: {'; '.join(one.cut)}.", ""]
    lines += [f"- **wrong**: {line}" for line in one.findings.wrong]
    if one.findings.wrong:
        lines.append("")
    if one.trace:
        lines += ["```", one.trace.rstrip(), "```", ""]
    return lines


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:], ""]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _driver() -> str:
    """The driver's version as nvidia-smi has it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return (done.stdout.splitlines() or [UNKNOWN])[0].strip() or UNKNOWN
