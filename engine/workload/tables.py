"""A workload from plain data, as TOML or JSON give it; an unknown key is an error."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from engine.errors import UserError
from engine.workload.checks import nearest
from engine.workload.config import WorkloadConfig
from engine.workload.disturbances import Disturbance, DrawnDisturbance
from engine.workload.regimes import Peak, Regime, Shifts
from engine.workload.trace_use import TraceUse

LISTS = {
    "regimes": ("regime", Regime),
    "disturbances": ("disturbance", Disturbance),
    "drawn_disturbances": ("drawn disturbance", DrawnDisturbance),
}


def config_from_table(table: Mapping[str, Any], source: str = "the workload") -> WorkloadConfig:
    """A config from plain data; None stands for "not given".

    `duration_s` defaults to the regimes' own length where there are regimes, and to inf with a
    trace, which may be one text, its source, or a table. UserError names an unknown key and the
    nearest known one.
    """
    values = _known(table, WorkloadConfig, source)
    for key, (noun, schema) in LISTS.items():
        rows = values.get(key, ())
        if not isinstance(rows, (list, tuple)):
            raise UserError(f"{source}: {key} is {rows!r}; expected a list of tables")
        values[key] = tuple(
            row if isinstance(row, schema) else _built(schema, row, f"{source}, {noun} {i}")
            for i, row in enumerate(rows, 1)
        )
    if values["regimes"] and "duration_s" not in values:
        values["duration_s"] = math.fsum(regime.duration_s for regime in values["regimes"])
    if "shifts" in values and not isinstance(values["shifts"], Shifts):
        values["shifts"] = _built(Shifts, values["shifts"], source)
    peaks = values.get("peaks", {})
    if isinstance(peaks, Mapping):
        values["peaks"] = {
            name: peak if isinstance(peak, Peak) else _built(Peak, peak, f"{source}, peak {name}")
            for name, peak in peaks.items()
        }
    if "trace" in values:
        trace = values["trace"]
        if isinstance(trace, str):
            trace = {"source": trace}
        if not isinstance(trace, TraceUse):
            trace = _built(TraceUse, trace, f"{source}, trace")
        values["trace"] = trace
        values.setdefault("duration_s", math.inf)
    return WorkloadConfig(**values)


def load_config(path: str | Path) -> WorkloadConfig:
    """The workload in a TOML file, named after the file unless it names itself.

    A trace's path is meant from the file's own folder.
    """
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the workload file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error
    config = config_from_table({"name": path.stem, **table}, str(path))
    if config.trace is None:
        return config
    return replace(config, trace=config.trace.seen_from(path.parent))


def _known(table: Mapping[str, Any], schema: type, source: str) -> dict[str, Any]:
    """The given entries of `table`, every one a field of the dataclass `schema`."""
    if not isinstance(table, Mapping):
        raise UserError(f"{source}: got {table!r}; expected a table of keys and values")
    names = [f.name for f in fields(schema)]
    for key in table:
        if key not in names:
            raise UserError(f"{source}: unknown key {key!r}; {nearest(str(key), names)}")
    return {key: value for key, value in table.items() if value is not None}


def _built(schema: type, table: Mapping[str, Any], source: str) -> Any:
    values = _known(table, schema, source)
    for entry in fields(schema):
        required = entry.default is MISSING and entry.default_factory is MISSING
        if required and entry.name not in values:
            what = "a text" if entry.type == "str" else "a number"
            raise UserError(f"{source}: the key {entry.name!r} is missing; expected {what}")
    try:
        return schema(**values)
    except UserError as error:
        raise UserError(f"{source}: {error}") from error
