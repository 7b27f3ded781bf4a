"""How well the cost model of this machine predicts what an iteration takes.

Both figures are shares of the measured time: on points of the measuring schedule that the fit
never saw, and in a run of changing load and trees. A bar holds where the error is no more than
its value, or 1.5 times as far as repeated steps lie from one another on this machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.decoding import decode_s
from benchmarks.figures import Result, UnmeasuredError
from engine.drafters.eagle3 import Eagle3Drafter
from engine.drafters.model import ModelDrafter
from engine.profile.command import BUDGET_S, QUICK_BUDGET_S, QUICK_ROUNDS, ROUNDS, SEED
from engine.profile.hardware_profile import HardwareProfile
from engine.profile.schedule import QUICK_SHAPES, SHAPES, Shape
from engine.protocol import Controller, Floats, Plan, View, uniform_plan

MEDIAN, P95, OF_NOISE = 0.05, 0.12, 1.5
RUN_S, QUICK_RUN_S = 600.0, 20.0
HELD = 8  # iterations for which a tree stays
TOKENS = 64


def held_out(bench: Bench, _: str) -> Result:
    """Error of the whole step's time at the points that were held out of the fit."""
    profile = bench.profile
    return judged_error(
        profile,
        profile.fits["step"].error_median,
        profile.fits["step"].error_p95,
        {name: vars(fit) for name, fit in profile.fits.items()},
        f"{profile.fits['step'].held_out} of {profile.fits['step'].points} points",
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
    """Error of every iteration's time, prefill and controller aside, over a shifting load."""
    from dataclasses import replace

    from engine import drawing
    from engine.workload import PromptSet, workload

    profile, server = bench.profile, bench.server
    length_s = QUICK_RUN_S if bench.quick else RUN_S
    config = workload("shifting", max_tokens=TOKENS)
    prompt_tokens = min(config.prompt_tokens, server.settings.context_tokens - TOKENS)
    config = replace(config, duration_s=length_s, prompt_tokens=prompt_tokens, truncate=True)
    requests = drawing.drawing(server, config, PromptSet.load())(bench.rng())
    engine = server.engine(requests, settings=replace(server.settings, horizon_s=length_s))
    controller = Changing(QUICK_SHAPES if bench.quick else SHAPES, bench.rng())
    controller.reset(engine.limits)
    drafter = server.drafter
    if not isinstance(drafter, Eagle3Drafter | ModelDrafter):
        raise UnmeasuredError(f"the cost model prices networks, not the drafter {drafter.name}")
    predicted, measured = [], []
    while (view := engine.next_decision()) is not None:
        behind = view.context_tokens - drafter.rows.done  # rows that a draft has to catch up with
        outcome = engine.run_iteration(view, controller)
        bench.say(f"predicted run: {engine.clock_s:.0f} of {length_s:.0f} s")
        on, context = view.active, view.context_tokens
        depth, width, nodes = controller.shape
        deepest = np.minimum(depth, np.maximum(view.remaining_tokens - 1, 0))
        predicted.append(
            profile.step_s(deepest[on], width, nodes, context[on], catch_up_tokens=behind[on])
        )
        measured.append(decode_s(outcome) - outcome.controller_s)
    if not measured:
        raise UnmeasuredError("the run had no iteration")
    off = np.abs(np.array(predicted) / np.array(measured) - 1)
    return judged_error(
        profile,
        float(np.median(off)),
        float(np.quantile(off, 0.95)),
        _by_load(np.array(predicted), np.array(measured)),
        f"{len(off):,} iterations in {engine.clock_s:.0f} s",
    )


def judged_error(
    profile: HardwareProfile, median: float, p95: float, raw: dict[str, Any], over: str
) -> Result:
    """The figure of an error's median and p95 beside the noise of repeated steps."""
    noise = profile.fits["step"]
    within = median <= OF_NOISE * noise.noise_median or median <= MEDIAN
    tail = p95 <= OF_NOISE * noise.noise_p95 or p95 <= P95
    return Result(
        value=100 * median,
        text=f"{100 * median:.1f} %, p95 {100 * p95:.1f} %",
        note=f"{over}; repeated steps lie {100 * noise.noise_median:.1f} % apart, p95 "
        f"{100 * noise.noise_p95:.1f} %",
        meets_alternative=within and tail,
        broken="" if tail else f"p95 is {100 * p95:.1f} %",
        raw={"error_median": median, "error_p95": p95, "details": raw},
    )


def _by_load(predicted: Floats, measured: Floats) -> dict[str, float]:
    """Whether the model leans to one side: predicted over measured, by thirds of the time."""
    thirds = np.array_split(np.argsort(measured), 3)
    names = ("short", "middle", "long")
    return {
        f"{name}_steps": float(predicted[third].sum() / measured[third].sum())
        for name, third in zip(names, thirds, strict=True)
        if len(third)
    }


def measure_profile(bench: Bench) -> HardwareProfile:
    """Profile the bench's server as `python -m engine.profile` does; nothing is stored."""
    from engine.profile.live import profile_server

    rounds, budget_s = (QUICK_ROUNDS, QUICK_BUDGET_S) if bench.quick else (ROUNDS, BUDGET_S)

    def say(done: float) -> None:
        bench.say(f"profile: {done:.0%}")

    return profile_server(bench.server, bench.quick, rounds, budget_s, SEED, say)
