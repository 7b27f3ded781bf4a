"""What a workload is: how long, how fast, which classes, how long the texts; and its TOML form.

Checks what can be checked without a deployment. Class names, capacity and prompts are checked
where they meet the workload (`arrivals`, `build`); named workloads stand in `presets`.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from engine.errors import UserError

MAX_SPANS = 10_000  # regimes in one workload; more is a slip in the units
CV_RANGE = (0.01, 20.0)  # the burstiest published trace (Azure code) has a CV of 13


@dataclass(frozen=True)
class Regime:
    """A stretch of time with one load and one mix."""

    duration_s: float
    load: float
    """Arrival rate in multiples of capacity."""
    mix: dict[str, float] = field(default_factory=dict)
    """Weights by class name; empty takes the workload's."""

    def __post_init__(self) -> None:
        _need_positive("a regime's duration_s", self.duration_s)
        _need_positive("a regime's load", self.load)
        object.__setattr__(self, "mix", _checked_mix("a regime's mix", self.mix))


@dataclass(frozen=True)
class Shifts:
    """Regimes that are drawn anew for every episode: duration and load uniform, mix Dirichlet."""

    duration_s: tuple[float, float] = (30.0, 90.0)
    load: tuple[float, float] = (0.5, 1.2)
    concentration: float = 1.0
    """Of the Dirichlet distribution, per class; 1 makes every mix equally likely."""

    def __post_init__(self) -> None:
        for name in ("duration_s", "load"):
            value = getattr(self, name)
            if not isinstance(value, (list, tuple)) or len(value) != 2:
                raise UserError(f"shifts: {name} is {value!r}; expected two numbers, low and high")
            for bound in value:
                _need_positive(f"shifts: {name}", bound)
            if value[0] > value[1]:
                raise UserError(f"shifts: {name} is {value!r}; expected low and then high")
            object.__setattr__(self, name, tuple(value))
        _need_positive("shifts: concentration", self.concentration)
        if self.concentration < 0.01:
            raise UserError(
                f"shifts: concentration is {self.concentration}; expected at least 0.01"
            )


@dataclass(frozen=True)
class WorkloadConfig:
    """Everything that decides a list of requests but the prompts, the capacity and the seed.

    Exactly one of `load`, `rate_rps`, `regimes` and `shifts` says how fast requests arrive.
    """

    name: str = "custom"
    duration_s: float = 120.0
    """Arrivals stop here. Given regimes may last longer (they are cut), not shorter."""
    load: float | None = None
    """Arrival rate in multiples of capacity."""
    rate_rps: float | None = None
    """Arrival rate in requests per second."""
    mix: dict[str, float] = field(default_factory=dict)
    """Weights by class name; empty is every class alike."""
    cv: float = 1.0
    """Coefficient of variation of the gaps between arrivals: 1 is Poisson, more is bursty."""
    max_tokens: int = 96
    """A request may emit between half of this and all of it, drawn uniformly."""
    prompt_tokens: int = 512
    """Longest prompt."""
    truncate: bool = False
    """Cut longer prompts instead of refusing them."""
    regimes: tuple[Regime, ...] = ()
    shifts: Shifts | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UserError(f"workload: name is {self.name!r}; expected a text")
        where = f"workload {self.name!r}"
        _need_positive(f"{where}: duration_s", self.duration_s)
        object.__setattr__(self, "mix", _checked_mix(f"{where}: mix", self.mix))
        regimes = self.regimes
        if not isinstance(regimes, (list, tuple)) or not all(
            isinstance(regime, Regime) for regime in regimes
        ):
            raise UserError(f"{where}: regimes is {regimes!r}; expected a tuple of Regime")
        object.__setattr__(self, "regimes", tuple(regimes))
        if self.shifts is not None and not isinstance(self.shifts, Shifts):
            raise UserError(f"{where}: shifts is {self.shifts!r}; expected Shifts")
        for name in ("load", "rate_rps"):
            if getattr(self, name) is not None:
                _need_positive(f"{where}: {name}", getattr(self, name))
        if not _is_number(self.cv) or not CV_RANGE[0] <= self.cv <= CV_RANGE[1]:
            raise UserError(f"{where}: cv is {self.cv!r}; expected a number in {list(CV_RANGE)}")
        for name in ("max_tokens", "prompt_tokens"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise UserError(f"{where}: {name} is {value!r}; expected a whole number from 1")
        if not isinstance(self.truncate, bool):
            raise UserError(f"{where}: truncate is {self.truncate!r}; expected true or false")
        self._check_speed(where)

    def _check_speed(self, where: str) -> None:
        given = [n for n in ("load", "rate_rps", "shifts") if getattr(self, n) is not None]
        given += ["regimes"] if self.regimes else []
        if len(given) != 1:
            raise UserError(
                f"{where}: its speed is given by {' and '.join(given) or 'nothing'}; "
                "expected exactly one of load, rate_rps, regimes and shifts"
            )
        total_s = math.fsum(regime.duration_s for regime in self.regimes)
        if self.regimes and total_s < self.duration_s:
            raise UserError(
                f"{where}: its regimes last {total_s:g} s but duration_s is {self.duration_s:g}; "
                "lower duration_s or lengthen the regimes"
            )
        if len(self.regimes) > MAX_SPANS or (
            self.shifts is not None and self.duration_s > MAX_SPANS * self.shifts.duration_s[0]
        ):
            raise UserError(
                f"{where}: it may hold more than {MAX_SPANS} regimes; lengthen the regimes' "
                "duration_s or shorten the workload's"
            )


def config_from_table(table: Mapping[str, Any], source: str = "the workload") -> WorkloadConfig:
    """A config from plain data, as TOML or JSON give it; None stands for "not given".

    `duration_s` defaults to the regimes' own length where there are regimes. UserError names an
    unknown key and the nearest known one.
    """
    values = _known(table, WorkloadConfig, source)
    regimes = values.get("regimes", ())
    if not isinstance(regimes, (list, tuple)):
        raise UserError(f"{source}: regimes is {regimes!r}; expected a list of tables")
    rows = [
        r if isinstance(r, Regime) else _built(Regime, r, f"{source}, regime {i}")
        for i, r in enumerate(regimes, 1)
    ]
    values["regimes"] = tuple(rows)
    if rows and "duration_s" not in values:
        values["duration_s"] = math.fsum(regime.duration_s for regime in rows)
    if "shifts" in values and not isinstance(values["shifts"], Shifts):
        values["shifts"] = _built(Shifts, values["shifts"], source)
    return WorkloadConfig(**values)


def load_config(path: str | Path) -> WorkloadConfig:
    """The workload in a TOML file, named after the file unless it names itself."""
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the workload file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error
    return config_from_table({"name": path.stem, **table}, str(path))


def nearest(name: str, known: Iterable[str]) -> str:
    """ "nearest is 'a' of a, b, c": the tail of a sentence about an unknown name."""
    names = sorted(known)
    if not names:
        return "none is known"

    def likeness(other: str) -> tuple[bool, float]:
        return other.startswith(name), difflib.SequenceMatcher(None, name, other).ratio()

    return f"nearest is {max(names, key=likeness)!r} of {', '.join(names)}"


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
            raise UserError(f"{source}: the key {entry.name!r} is missing; expected a number")
    try:
        return schema(**values)
    except UserError as error:
        raise UserError(f"{source}: {error}") from error


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _need_positive(label: str, value: Any) -> None:
    if not _is_number(value) or not 0 < value < math.inf:
        raise UserError(f"{label} is {value!r}; expected a positive number")


def _checked_mix(label: str, mix: object) -> dict[str, float]:
    """A copy of `mix`; a class may have weight 0, but not all of them."""
    if not isinstance(mix, Mapping):
        raise UserError(f"{label} is {mix!r}; expected weights by class name")
    for name, weight in mix.items():
        if not isinstance(name, str) or not _is_number(weight) or not 0 <= weight < math.inf:
            raise UserError(
                f"{label} gives {name!r} the weight {weight!r}; expected a number from 0"
            )
    if mix and not 0 < math.fsum(mix.values()) < math.inf:
        raise UserError(f"{label} is {dict(mix)!r}; expected at least one positive weight")
    return dict(mix)
