"""The switching oracle: a real run that changes to each regime's best fixed setting when it begins.

It knows what no controller does, the change points and the outcome of a sweep, and it pays what
they all pay, backlog and catching up included. What a controller lost against it in a shift is
`eval.adaptation`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from engine.classes import ClassTable
from engine.errors import UserError
from engine.observability.outputs import Observers
from engine.protocol import Controller, Limits, Outcome, Plan, View
from engine.workload import Regime, Span, WorkloadConfig, draw_spans, episode_generator
from eval import runner
from eval.adaptation import Adaptation, adaptation
from eval.runner import MakeEngine, SeededRequests
from eval.windows import WINDOW_S, TimelineObserver, listen
from policies.delegate import defined

ORACLE = "switching oracle"


class Stretch(NamedTuple):
    """A regime as it is served, and the workload that is this regime alone."""

    start_s: float
    end_s: float
    alone: WorkloadConfig


def stretches(
    config: WorkloadConfig, classes: ClassTable, seed: int, alone_s: float
) -> list[Stretch]:
    """The regimes of the episode with that seed; each alone lasts `alone_s`.

    Disturbances are left out, here and in the regimes alone: only regimes are changed between.
    Raises UserError for a workload without regimes and for a class that the table does not have.
    """
    if not config.regimes and config.shifts is None:
        raise UserError(
            f"workload {config.name!r} has no regimes to switch between; expected one with "
            "regimes or shifts, such as shifting"
        )
    # Times do not depend on the capacity, and with a capacity of 1 a rate is a load.
    spans = draw_spans(config, classes, 1.0, episode_generator(seed))

    def alone(span: Span) -> WorkloadConfig:
        mix = dict(zip(classes.names, span.weights.tolist(), strict=True))
        regime = Regime(alone_s, span.rate_rps, mix, span.acceptance, span.draft_time)
        return replace(
            config,
            duration_s=alone_s,
            regimes=(regime,),
            shifts=None,
            disturbances=(),
            drawn_disturbances=(),
        )

    return [Stretch(span.start_s, span.end_s, alone(span)) for span in spans]


def best_fixed(
    alone: Sequence[SeededRequests], settings: Mapping[str, Controller], make_engine: MakeEngine
) -> str:
    """Name of the setting with the most SLO-valid tokens a second on runs of one regime alone.

    Of equals the first, so name the cheapest first.
    """
    found = runner.run(settings, alone, make_engine)

    def valid_tps(name: str) -> float:
        return float(found.values(name, lambda run: run.metrics.valid_tps).mean())

    return max(settings, key=valid_tps)


def switching_oracle(
    found: Sequence[Stretch],
    settings: Mapping[str, Controller],
    episodes: Callable[[WorkloadConfig], Sequence[SeededRequests]],
    make_engine: MakeEngine,
) -> Switching:
    """The oracle over the stretches found, after a sweep of all settings over each of them alone.

    `episodes` draws the sweep's runs, with seeds of their own: an oracle picked on the arrivals
    that it then serves would be helped by luck.
    """
    best = [best_fixed(episodes(s.alone), settings, make_engine) for s in found]
    return Switching([s.start_s for s in found], [settings[name] for name in best])


class Switching(Controller):
    """Acts as another controller from each change point on."""

    name = ORACLE

    def __init__(self, starts_s: Sequence[float], chosen: Sequence[Controller]) -> None:
        """`chosen[i]` acts from `starts_s[i]` on. Fixed settings only: who selects nodes or stops
        drafting by itself is a ValueError, as are starts that do not rise from 0."""
        own = [c.name for c in chosen if defined(c)]
        if own or len(starts_s) != len(chosen):
            raise ValueError(f"{len(starts_s)} starts, {len(chosen)} settings; not fixed: {own}")
        if list(starts_s) != sorted(set(starts_s)) or not starts_s or starts_s[0] != 0:
            raise ValueError(f"starts are {list(starts_s)}; expected times that rise from 0")
        self.starts_s, self.chosen = list(starts_s), list(chosen)
        self.acting = self.chosen[0]
        self.lossless = all(c.lossless for c in chosen)

    def reset(self, limits: Limits) -> None:
        """A new episode begins."""
        self.acting = self.chosen[0]
        for controller in self.chosen:
            controller.reset(limits)

    def plan(self, view: View) -> Plan:
        """What the regime's setting plans."""
        self.acting = self.chosen[bisect_right(self.starts_s, view.clock_s) - 1]
        return self.acting.plan(view)

    def observe(self, outcome: Outcome) -> None:
        """The setting that acted is told."""
        self.acting.observe(outcome)


def adaptations(
    controllers: Mapping[str, Controller],
    oracle: Switching,
    episode: SeededRequests,
    make_engine: MakeEngine,
    end_s: float,
    window_s: float = WINDOW_S,
    engines: Mapping[str, MakeEngine] | None = None,
) -> dict[str, tuple[Adaptation, ...]]:
    """By controller, its passage through each change of the episode after the first regime.

    The oracle's own stand under its name, settled at once and without regret by definition
    where its tolerance allows a judgement. `engines` holds those of controllers that need engines
    of their own; the oracle and all others get `make_engine`'s. `end_s` is when the last regime
    ends. Raises UserError where no window fits into a regime.
    """
    heard = {name: listen(c) for name, c in {ORACLE: oracle, **controllers}.items()}
    observers: dict[str, TimelineObserver] = {}

    def watch(name: str, seed: int) -> Observers:
        observers[name] = TimelineObserver(heard[name])
        return Observers([observers[name]])

    makers = dict.fromkeys(heard, make_engine) | dict(engines or {})
    runner.run(heard, [episode], makers, watch=watch)
    starts_s = oracle.starts_s
    after_shifts = list(zip(starts_s, [*starts_s[1:], end_s], strict=True))[1:]
    timelines = {name: observer.timeline() for name, observer in observers.items()}
    series = {
        name: [timeline.series(*stretch, window_s) for stretch in after_shifts]
        for name, timeline in timelines.items()
    }
    return {
        name: tuple(adaptation(*pair) for pair in zip(own, series[ORACLE], strict=True))
        for name, own in series.items()
    }
