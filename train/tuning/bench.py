"""Where a trial is measured: every trace with every seed, on one server, one run at a time.

Trials draw training texts with seeds below those of held-out arrivals; the test at the end draws
held-out texts with held-out seeds. What a run is worth is `train.tuning.figures`'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from engine.classes import DEFAULT_CLASSES
from engine.observability.outputs import Observers
from engine.protocol import Controller
from engine.server import Server
from engine.workload import FIRST_HELD_OUT_SEED, WorkloadConfig, episode_generator
from eval import runner
from eval.compare import ARRIVING, over
from eval.contenders import engine_makers
from eval.runner import Run, SeededRequests
from train.config import Serving
from train.evaluation import drawing, served_workload
from train.tuning.figures import FIGURES, Accepted

if TYPE_CHECKING:
    from engine.drawing import Draw

FIRST_TRIAL_SEED = 0


class Instance(NamedTuple):
    """One run's arrivals: a workload and a seed."""

    trace: str
    seed: int

    @property
    def key(self) -> str:
        """As it stands in a study."""
        return f"{self.trace}#{self.seed}"


def trial_instances(traces: tuple[str, ...], seeds: int) -> list[Instance]:
    """Traces × seeds of a trial, the traces in turn."""
    return _instances(traces, FIRST_TRIAL_SEED, seeds)


def held_out_instances(traces: tuple[str, ...], seeds: int) -> list[Instance]:
    """Traces × seeds of the test at the end, which share no seed with those of trials."""
    return _instances(traces, FIRST_HELD_OUT_SEED, seeds)


def _instances(traces: tuple[str, ...], first: int, count: int) -> list[Instance]:
    return [Instance(trace, seed) for seed in range(first, first + count) for trace in traces]


@dataclass
class Bench:
    """A server, and how long a run on it is."""

    server: Server
    serving: Serving
    seconds: float

    def __post_init__(self) -> None:
        self._draws: dict[tuple[str, bool], Draw] = {}

    def serve(self, controller: Controller, instance: Instance) -> dict[str, float]:
        """Every figure of a run of `seconds`; what is unfinished by then is a miss."""
        counted = Accepted()
        settings = replace(self.server.settings, horizon_s=self.seconds)
        named = {controller.name: controller}
        draw = self._draw(instance.trace, instance.seed >= FIRST_HELD_OUT_SEED)
        episode = SeededRequests(instance.seed, lambda: draw(episode_generator(instance.seed)))
        makers = engine_makers(self.server, named, DEFAULT_CLASSES, settings)
        comparison = runner.run(named, [episode], makers, watch=lambda *_: Observers([counted]))
        (run,) = comparison.runs[controller.name]
        return _figures(run, counted)

    def workload(self, trace: str) -> WorkloadConfig:
        """The trace as a run serves it. Raises UserError."""
        served = served_workload(replace(self.serving, workload=trace))
        return over(served, ARRIVING * self.seconds)

    def _draw(self, trace: str, held_out: bool) -> Draw:
        if (trace, held_out) not in self._draws:
            config = self.workload(trace)
            self._draws[trace, held_out] = drawing(self.server, self.serving, config, held_out)
        return self._draws[trace, held_out]


def _figures(run: Run, counted: Accepted) -> dict[str, float]:
    return {name: float(figure.of(run, counted)) for name, figure in FIGURES.items()}
