"""Workloads by name, and the one function that a command hands its `--workload` to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from engine.errors import UserError
from engine.workload.checks import nearest
from engine.workload.config import WorkloadConfig
from engine.workload.regimes import Peak, Shifts
from engine.workload.tables import load_config
from engine.workload.trace_use import TraceUse
from engine.workload.traces import READERS, parse_source


def steady() -> WorkloadConfig:
    """Two minutes at 0.8 × capacity, every class alike (ours)."""
    return WorkloadConfig(name="steady", duration_s=120.0, load=0.8)


def shifting() -> WorkloadConfig:
    """Ten minutes of regimes that change without notice (ALGORITHMS.md section 10).

    Regimes of U(30, 90) s, load U(0.5, 1.2) × capacity, mix Dirichlet(1, 1, 1), acceptance ×
    U(0.7, 1.1), draft time × 2 with probability 0.2, drawn anew from each episode's generator.
    The last two change no arrival and are in the episode's `Disturbances`.
    """
    shifts = Shifts(
        duration_s=(30.0, 90.0),
        load=(0.5, 1.2),
        concentration=1.0,
        acceptance=(0.7, 1.1),
        slow_draft=2.0,
        slow_probability=0.2,
    )
    return WorkloadConfig(name="shifting", duration_s=600.0, shifts=shifts)


def three_peaks() -> WorkloadConfig:
    """Six minutes in which chat, coding and summarization peak in turn (AdaServe, figure 13).

    Peaks at 1.5, 3 and 4.5 minutes, all of 4 requests/s, standard deviation 48 s: rounded from the
    1,445 requests of the artifact's trace `fluc_6m_peak4.0` (means 92, 178 and 263 s, deviations
    46, 50 and 47 s). Their mean of 3.9 requests/s becomes 0.8 × capacity (ours); the highest load,
    where coding peaks, is 1.4 times the mean.
    """
    width = 48.0 / 360.0
    peaks = {
        "chat": Peak(0.25, width),
        "coding": Peak(0.5, width),
        "summarization": Peak(0.75, width),
    }
    return WorkloadConfig(name="three-peaks", duration_s=360.0, load=0.8, peaks=peaks)


def overload() -> WorkloadConfig:
    """Two minutes at 1.5 × capacity: queues grow whatever the controller does (ours)."""
    return WorkloadConfig(name="overload", duration_s=120.0, load=1.5)


def one_by_one() -> WorkloadConfig:
    """Two minutes of coding requests, one a second, for an engine of one slot.

    Learning-to-Draft serves so (`envs.learning_to_draft`). One a second is more than most machines
    answer one at a time, so that there is no idle time (ours).
    """
    return WorkloadConfig(name="one-by-one", duration_s=120.0, rate_rps=1.0, mix={"coding": 1.0})


PRESETS: dict[str, Callable[[], WorkloadConfig]] = {
    "steady": steady,
    "shifting": shifting,
    "three-peaks": three_peaks,
    "overload": overload,
    "one-by-one": one_by_one,
}


def workload(name_or_path: str | Path, **overrides: Any) -> WorkloadConfig:
    """The preset of that name, the trace or the workload in that TOML file, with fields replaced.

    A trace is written NAME:PATH or NAME:PATH#PART (`engine.workload.traces`), a plain CSV by its
    path; it is served whole and at its own speed. An override of None counts as not given. `load`
    and `rate_rps` replace each other; both are refused where regimes or shifts set the speed.
    UserError for an unknown name or field, or a trace whose path does not exist.
    """
    name = str(name_or_path)
    source = parse_source(name)
    if name in PRESETS:
        config = PRESETS[name]()
    elif name.endswith(".toml") or (Path(name).is_file() and source is None):
        config = load_config(name)
    elif source is not None:
        config = WorkloadConfig(name=source.short, duration_s=math.inf, trace=TraceUse(name))
    elif ":" in name:
        reader = name.partition(":")[0]
        raise UserError(f"workload {name!r}: unknown trace {reader!r}; {nearest(reader, READERS)}")
    else:
        raise UserError(
            f"unknown workload {name!r}; {nearest(name, PRESETS)}, or give a .toml file, a .csv "
            "file or a trace as NAME:PATH"
        )
    if config.trace is not None and not config.trace.parsed.path.exists():
        raise UserError(
            f"workload {name!r}: there is nothing at {config.trace.parsed.path}; name the trace's "
            "file or folder"
        )
    given = {key: value for key, value in overrides.items() if value is not None}
    known = [f.name for f in fields(WorkloadConfig)]
    for key in given:
        if key not in known:
            raise UserError(f"workload {name!r}: unknown field {key!r}; {nearest(key, known)}")
    if "load" in given and "rate_rps" not in given:
        given["rate_rps"] = None
    elif "rate_rps" in given and "load" not in given:
        given["load"] = None
    return replace(config, **given)
