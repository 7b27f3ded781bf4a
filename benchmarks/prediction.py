"""How well the cost model of this machine predicts what an iteration takes.

Both figures are shares of the measured time: on points of the measuring schedule that the fit
never saw, and in a run of changing load and trees, as the engine itself predicted every step. A
bar holds where the error is no more than its value, or 1.5 times as far as repeated steps lie from
one another: those of the profile for its own points, and for the run the same kind of steps,
repeated before, between and after its parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from engine.profile.build import STEP_PARTS
from engine.profile.command import BUDGET_S, QUICK_BUDGET_S, QUICK_ROUNDS, ROUNDS, SEED
from engine.profile.hardware_profile import HardwareProfile
from engine.profile.measure import Step, run_episode
from engine.profile.points import step_points
from engine.profile.schedule import QUICK_SHAPES, SHAPES, Episode, Shape, schedule
from engine.protocol import Bools, Controller, Floats, Outcome, Plan, View, uniform_plan
from engine.serving import LiveServer

MEDIAN, P95, OF_NOISE = 0.05, 0.12, 1.5
RUN_S, QUICK_RUN_S = 600.0, 60.0
PARTS, QUICK_PARTS = 10, 3
HELD = 8  # iterations for which a tree stays
TOKENS = 64


class Spread(NamedTuple):
    """Median and 95th percentile of relative deviations."""

    median: float
    p95: float

    @classmethod
    def of(cls, deviations: Floats) -> Spread:
        """Of at least one."""
        return cls(float(np.median(deviations)), float(np.quantile(deviations, 0.95)))


def held_out(bench: Bench, _: str) -> Result:
    """Error of the whole step's time at the points that were held out of the fit."""
    fits = bench.profile.fits
    step = fits["step"]
    return judged_error(
        Spread(step.error_median, step.error_p95),
        Spread(step.noise_median, step.noise_p95),
        {name: vars(fit) for name, fit in fits.items()},
        f"{step.held_out} of {step.points} points",
    )


class Changing(Controller):
    """One of the schedule's trees for some iterations, then another, drawn from a generator."""

    name = "changing"

    def __init__(self, shapes: tuple[Shape, ...], generator: np.random.Generator) -> None:
        self.shapes, self.generator, self.count = shapes, generator, 0
        self.shape = shapes[0]

    def plan(self, view: View) -> Plan:
        """The same tree for every request."""
        if self.count % HELD == 0:
            self.shape = self.shapes[int(self.generator.integers(len(self.shapes)))]
        self.count += 1
        return uniform_plan(view.limits, *self.shape)


def served(bench: Bench, _: str) -> Result:
    """Error of every iteration's time, prompts included, over a shifting load."""
    server = bench.server
    if server.drafter.name == "prompt-lookup":
        raise UnmeasuredError("prompt-lookup drafts what it finds, so that no tree is as planned")
    before, server.profile = server.profile, bench.profile
    try:
        outcomes, steps = _run(bench)
    finally:
        server.profile = before
    if not outcomes:
        raise UnmeasuredError("the run had no iteration")
    errors = np.array([outcome.prediction_error for outcome in outcomes])
    measured_s = np.array([outcome.iteration_s - outcome.controller_s for outcome in outcomes])
    prompts = np.array([outcome.prefill_s > 0 for outcome in outcomes])
    return judged_error(
        Spread.of(np.abs(errors)),
        Spread.of(step_points(steps).noise(*STEP_PARTS)),
        _by_load(errors, measured_s) | _by_prompts(errors, prompts),
        f"{len(errors):,} iterations in {measured_s.sum():.0f} s",
    )


def _run(bench: Bench) -> tuple[list[Outcome], list[Step]]:
    """The run's iterations, and the steps repeated around its parts."""
    length_s, parts = (QUICK_RUN_S, QUICK_PARTS) if bench.quick else (RUN_S, PARTS)
    generator = bench.rng()
    shapes = QUICK_SHAPES if bench.quick else SHAPES
    controller = Changing(shapes, generator)
    outcomes: list[Outcome] = []
    steps = _repeated_steps(bench.server)
    for part in range(parts):
        for outcome in _part(bench, controller, generator, length_s / parts):
            outcomes.append(outcome)
            done_s = part * length_s / parts + outcome.start_s
            bench.say(f"predicted run: {done_s:.0f} of {length_s:.0f} s")
        steps += _repeated_steps(bench.server)
    return outcomes, steps


def _part(
    bench: Bench, controller: Controller, generator: np.random.Generator, length_s: float
) -> Iterator[Outcome]:
    """Serve a shifting load, drawn anew, for `length_s` on the engine's clock."""
    from engine.drawing import Drawing
    from engine.workload import PromptSet, workload
    from eval.compare import over

    server = bench.server
    config = over(workload("shifting", max_tokens=TOKENS), length_s)
    prompt_tokens = min(config.prompt_tokens, server.settings.context_tokens - TOKENS)
    config = replace(config, prompt_tokens=prompt_tokens, truncate=True)
    requests = Drawing(server, config, PromptSet.load())(generator)
    engine = server.engine(requests, settings=replace(server.settings, horizon_s=length_s))
    controller.reset(engine.limits)
    while (view := engine.next_decision()) is not None:
        yield engine.run_iteration(view, controller)


def _repeated_steps(server: LiveServer) -> list[Step]:
    """The iterations of the quick schedule's batches, the same ones whenever asked."""
    settings = server.settings
    episodes = schedule(settings.limits, settings.context_tokens, True, np.random.default_rng(SEED))
    return [
        step
        for index, episode in enumerate(episodes)
        if _is_batch(episode)
        for step in run_episode(server, index, episode).steps
    ]


def _is_batch(episode: Episode) -> bool:
    """Whether it is about trees: the others are about prompts."""
    return len(episode.shapes) > 2


def judged_error(error: Spread, noise: Spread, details: dict[str, Any], over: str) -> Result:
    """The figure of an error beside the noise of repeated steps."""
    within = error.median <= max(MEDIAN, OF_NOISE * noise.median)
    tail = error.p95 <= max(P95, OF_NOISE * noise.p95)
    return Result(
        value=100 * error.median,
        text=f"{100 * error.median:.1f} %, p95 {100 * error.p95:.1f} %",
        note=f"{over}; repeated steps lie {100 * noise.median:.1f} % apart, p95 "
        f"{100 * noise.p95:.1f} %",
        meets_alternative=within and tail,
        broken="" if tail else f"p95 is {100 * error.p95:.1f} %",
        raw={"error": error._asdict(), "noise": noise._asdict(), "details": details},
    )


def _by_load(errors: Floats, measured_s: Floats) -> dict[str, float]:
    """Whether the model leans to one side: predicted over measured, by thirds of the time."""
    thirds = np.array_split(np.argsort(measured_s), 3)
    names = ("short", "middle", "long")
    return {
        f"{name}_steps": float(
            ((1 + errors[third]) * measured_s[third]).sum() / measured_s[third].sum()
        )
        for name, third in zip(names, thirds, strict=True)
        if len(third)
    }


def _by_prompts(errors: Floats, prompts: Bools) -> dict[str, float]:
    """Median error of iterations that read prompts, and of those that only decode."""
    kinds = {"with_prompts": prompts, "without_prompts": ~prompts}
    return {
        f"error_{name}": float(np.median(np.abs(errors[kind])))
        for name, kind in kinds.items()
        if kind.any()
    }


def measure_profile(bench: Bench) -> HardwareProfile:
    """Profile the bench's server as `python -m engine.profile` does; nothing is stored."""
    from engine.profile.live import profile_server

    rounds, budget_s = (QUICK_ROUNDS, QUICK_BUDGET_S) if bench.quick else (ROUNDS, BUDGET_S)

    def say(done: float) -> None:
        bench.say(f"profile: {done:.0%}")

    return profile_server(bench.server, bench.quick, rounds, budget_s, SEED, say)
