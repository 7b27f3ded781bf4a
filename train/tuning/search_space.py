"""What is searched: ranges by flat name, as Optuna has them, in words, and how two differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from policies.tunable import Tunable

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Space = dict[str, Tunable]
Values = Mapping[str, float]


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The space as Optuna has it."""
    from optuna.distributions import FloatDistribution, IntDistribution

    return {
        name: IntDistribution(int(r.low), int(r.high), log=r.log)
        if r.whole
        else FloatDistribution(r.low, r.high, log=r.log)
        for name, r in space.items()
    }


def rounded(values: Values) -> dict[str, float]:
    """Real numbers with three significant digits, whole ones as they are.

    Done before anything is served, so that what is shown is what was measured.
    """
    return {
        name: value if isinstance(value, int) else float(f"{value:.3g}")
        for name, value in values.items()
    }


def in_words(space: Space) -> dict[str, str]:
    """Every range in words: what a study keeps of its space, to see later whether it changed."""
    return {name: _range(tunable) for name, tunable in space.items()}


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs between two spaces, or settings, in words."""
    found = [
        f"{name} was {before[name]} and is {now[name]}"
        for name in before
        if name in now and before[name] != now[name]
    ]
    found += [f"{name} is gone" for name in before if name not in now]
    return found + [f"{name} is new" for name in now if name not in before]


def _range(tunable: Tunable) -> str:
    ends = f"{tunable.low:g} to {tunable.high:g}"
    kinds = [k for k, on in (("whole", tunable.whole), ("logarithmic", tunable.log)) if on]
    return f"{ends} ({', '.join(kinds)})" if kinds else ends
