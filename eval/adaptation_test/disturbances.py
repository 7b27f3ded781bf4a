"""The seven disturbances: what is served, what happens to it, and when.

Six come at one moment, stay for half a minute and go; every controller meets a change for the worse
and one back. In the three-peak trace the class that most ask for changes twice. Stretches are as
long as the shortest regimes of shifting load. Times are multiples of the window, loads of capacity.
Sizes are ours, as far as the presets go or further: small ones would change no fixed tree's rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from engine.workload import Disturbance, Regime, WorkloadConfig, workload

WINDOW_S = 2.5
COMES_S, GOES_S, END_S = 20.0, 52.5, 85.0
DRIFTS_S = 7.5
"""How long the drift of acceptance takes, to come and to go."""
LOAD, LOW, HIGH = 0.7, 0.5, 1.1
"""Of the arrivals; before and behind a rate step, and within it."""
PEAKS_S, PEAKS_CHANGE_S = 100.0, (37.5, 62.5)
"""The three-peak trace, and where the next class overtakes the one before: between their peaks."""
EVEN = {"coding": 1.0, "chat": 1.0, "summarization": 1.0}
STRICT = {"coding": 8.0, "chat": 1.0, "summarization": 1.0}
ACCEPTANCE, DRAFT_TIME, MEMORY, POWER = 0.3, 4.0, 0.7, 0.5


@dataclass(frozen=True)
class Stretch:
    """The time from one change to the next."""

    start_s: float
    end_s: float
    says: str
    """What holds in it."""


@dataclass(frozen=True)
class Disturbed:
    """An episode with its changes."""

    name: str
    title: str
    config: WorkloadConfig
    stretches: tuple[Stretch, ...]
    """The first is before anything happens; each other one begins with a change."""
    window_s: float

    @property
    def end_s(self) -> float:
        """When the episode is cut."""
        return self.stretches[-1].end_s


def disturbed(scale: float = 1.0, load: float = 1.0) -> dict[str, Disturbed]:
    """All seven by name. `scale` multiplies all times, `load` all loads."""
    there: dict[str, tuple[str, dict[str, Any], str]] = {
        "mix": ("abrupt mix", {"mix": STRICT}, "eight in ten ask for code"),
        "rate": ("rate step", {"load": HIGH}, f"{HIGH:g} × capacity"),
    }
    wrong = {
        "acceptance": ("acceptance drift", ACCEPTANCE, f"acceptance × {ACCEPTANCE:g}"),
        "draft_time": ("draft slow-down", DRAFT_TIME, f"draft steps × {DRAFT_TIME:g}"),
        "memory": ("memory squeeze", MEMORY, f"{MEMORY:.0%} of the KV pages withdrawn"),
        "power_cap": ("power cap", POWER, f"capped at {POWER:.0%} of the highest power"),
    }
    found = [_of_regimes(name, *of, scale, load) for name, of in there.items()]
    found += [_of_kind(name, *of, scale, load) for name, of in wrong.items()]
    return {of.name: of for of in [*found, _three_peaks(scale, load)]}


def _of_regimes(
    name: str, title: str, changed: dict[str, Any], says: str, scale: float, load: float
) -> Disturbed:
    usual: dict[str, Any] = {"load": LOW if name == "rate" else LOAD, "mix": EVEN}
    spans = (COMES_S, GOES_S - COMES_S, END_S - GOES_S)
    regimes = []
    for lasts_s, of in zip(spans, (usual, usual | changed, usual), strict=True):
        of = of | {"load": load * of["load"]}
        regimes.append(Regime(scale * lasts_s, **of))
    config = replace(_plain(name, END_S * scale), load=None, regimes=tuple(regimes))
    return Disturbed(name, title, config, _there_and_back(scale, says), scale * WINDOW_S)


def _of_kind(
    name: str, title: str, value: float, says: str, scale: float, load: float
) -> Disturbed:
    """A drift begins to come and begins to go at the change points; all else is there at once."""
    ramp_s = DRIFTS_S if name == "acceptance" else 0.0
    goes_s = GOES_S + ramp_s
    fault = Disturbance(name, scale * COMES_S, scale * goes_s, value, scale * ramp_s)
    plain = _plain(name, END_S * scale)
    config = replace(plain, load=load * LOAD, mix=EVEN, disturbances=(fault,))
    return Disturbed(name, title, config, _there_and_back(scale, says), scale * WINDOW_S)


def _three_peaks(scale: float, load: float) -> Disturbed:
    preset = workload("three-peaks")
    assert preset.load is not None
    config = replace(preset, duration_s=scale * PEAKS_S, load=load * preset.load)
    edges = (0.0, *PEAKS_CHANGE_S, PEAKS_S)
    names = sorted(config.peaks, key=lambda name: config.peaks[name].at)
    stretches = tuple(
        Stretch(scale * start_s, scale * end_s, f"{name} peaks")
        for (start_s, end_s), name in zip(pairwise(edges), names, strict=True)
    )
    return Disturbed("three-peaks", "three peaks", config, stretches, scale * WINDOW_S)


def _there_and_back(scale: float, says: str) -> tuple[Stretch, ...]:
    edges = [scale * at_s for at_s in (0.0, COMES_S, GOES_S, END_S)]
    told = ("as usual", says, "as before")
    return tuple(Stretch(*of, words) for of, words in zip(pairwise(edges), told, strict=True))


def _plain(name: str, duration_s: float) -> WorkloadConfig:
    return replace(workload("steady"), name=name, duration_s=duration_s)
