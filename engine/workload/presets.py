"""Workloads by name, and the one function that a command hands its `--workload` to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from engine.errors import UserError
from engine.workload.config import Shifts, WorkloadConfig, load_config, nearest


def steady() -> WorkloadConfig:
    """Two minutes at 0.8 × capacity, every class alike (ours)."""
    return WorkloadConfig(name="steady", duration_s=120.0, load=0.8)


def shifting() -> WorkloadConfig:
    """Ten minutes of regimes that change without notice (ALGORITHMS.md §10, arrivals only).

    Regimes of U(30, 90) s, load U(0.5, 1.2) × capacity, mix Dirichlet(1, 1, 1), drawn anew from
    each episode's generator. Left out: the drift of acceptance and the slow draft steps, since a
    live drafter's acceptance and speed are what they are.
    """
    return WorkloadConfig(name="shifting", duration_s=600.0, shifts=Shifts())


def overload() -> WorkloadConfig:
    """Two minutes at 1.5 × capacity: queues grow whatever the controller does (ours)."""
    return WorkloadConfig(name="overload", duration_s=120.0, load=1.5)


PRESETS: dict[str, Callable[[], WorkloadConfig]] = {
    "steady": steady,
    "shifting": shifting,
    "overload": overload,
}


def workload(name_or_path: str | Path, **overrides: Any) -> WorkloadConfig:
    """The preset of that name or the workload in that TOML file, with fields replaced.

    An override of None counts as not given. `load` and `rate_rps` replace each other; both are
    refused where regimes or shifts set the speed. UserError for an unknown name or field.
    """
    name = str(name_or_path)
    if name in PRESETS:
        config = PRESETS[name]()
    elif name.endswith(".toml") or Path(name).is_file():
        config = load_config(name)
    else:
        raise UserError(
            f"unknown workload {name!r}; {nearest(name, PRESETS)}, or give a .toml file"
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
