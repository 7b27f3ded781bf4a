"""What a comparison of live with replay is about, and the run of it from a command's options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.errors import UserError

if TYPE_CHECKING:
    from engine.replay.server import ReplayServer
    from engine.request import Request
    from engine.serving import LiveServer
    from eval.fidelity.course import Report
    from eval.fidelity.runs import Case

CONTROLLERS = ("autoregressive", "chain(4)", "eagle3(3,4,8)", "sglang-ema")
LOADS = (0.5, 0.85, 0.95)
REPORTED = 0.95
"""A load at which figures are told and not judged: queues there hang on the last few per cent."""
RANKED_LOAD = 0.7
LONG_S = 60.0
"""So long arrivals have as many requests as are taken of them."""


@dataclass(frozen=True)
class Scope:
    """How much is served, and by whose times."""

    controllers: tuple[str, ...] = CONTROLLERS
    loads: tuple[float, ...] = LOADS
    seconds: float = 14.0
    """Of arrivals a run."""
    drained: int = 16
    """Requests that come all at once; 0: no such case."""
    live_runs: int = 2
    blocks: int = 5
    """By which controllers are ranked; 0: they are not."""
    block_requests: int = 7
    measure_profile: bool = False
    """Replay runs by a profile that is measured between the live runs."""
    calibrate: bool = False
    """Every stage on replay takes as long as known passes took between the live runs."""
    quick: bool = False
    """Fewer points of the profile that is measured."""
    recording: Path | None = None
    profile: Path | None = None
    seed: int = 0

    def check(self) -> None:
        """Raise UserError for a scope in which nothing can be compared."""
        if self.live_runs < 2 or not 0 < self.seconds < float("inf"):
            raise UserError(
                f"--live-runs {self.live_runs} --seconds {self.seconds:g}: expected at least 2 "
                "runs, to know how far live runs lie apart, and seconds above 0"
            )
        if self.blocks == 1 or self.blocks < 0 or self.block_requests < 1:
            raise UserError(
                f"--blocks {self.blocks} --block-requests {self.block_requests}: expected 0 blocks "
                "for no ranking, or at least 2 (5 or more make useful intervals), and requests in "
                "each"
            )


class Servers(NamedTuple):
    """Both sides."""

    live: LiveServer
    replay: ReplayServer


@contextmanager
def servers(scope: Scope) -> Iterator[Servers]:
    """The recorded pair live, in its recorded number format, and on replay; raises UserError."""
    from engine.replay.server import ReplayConfig, ReplayServer
    from engine.serving import LiveConfig, LiveServer

    replay = ReplayServer.load(ReplayConfig(recording=scope.recording, profile=scope.profile))
    config = LiveConfig(
        replay.name,
        dtype=replay.manifest.dtype,
        slots=replay.settings.limits.slots,
        capacity_tokens=replay.settings.capacity_tokens,
    )
    with closing(LiveServer.load(config)) as live:
        yield Servers(live, replay)


def measured(scope: Scope, both: Servers, say: Callable[[str], None]) -> Report:
    """Serve all that the scope names on both; raises UserError."""
    from engine.profile.live import ProfileRounds
    from eval.fidelity.course import Course, Machine
    from policies import registry

    live, replay = both
    course = Course(
        controllers=[registry.make(spec) for spec in scope.controllers],
        cases=cases(replay, scope),
        blocks=[
            first(steady(replay, RANKED_LOAD, LONG_S, scope.seed + 1 + b), scope.block_requests)
            for b in range(scope.blocks)
        ],
        live_runs=scope.live_runs,
        reported=frozenset({load_name(REPORTED)}),
        calibrate=scope.calibrate,
        seed=scope.seed,
    )
    # Few points are enough to see a machine drift, and too few to fit.
    often = ProfileRounds(live, True, scope.seed)
    seldom = ProfileRounds(live, scope.quick, scope.seed) if scope.measure_profile else None
    return course.run(live, replay, Machine(often, seldom), say)


def cases(replay: ReplayServer, scope: Scope) -> list[Case]:
    """Steady arrivals at every load, and a number of requests that all come at once."""
    from eval.fidelity.course import at_once

    made = [steady(replay, load, scope.seconds, scope.seed) for load in scope.loads]
    if scope.drained:
        made.append(
            at_once(steady(replay, 2.0, max(scope.seconds, 20.0), scope.seed), scope.drained)
        )
    return made


def steady(replay: ReplayServer, load: float, seconds: float, seed: int) -> Case:
    """Held-out texts at a constant rate, in multiples of what `replay` takes its capacity to be.

    Raises UserError where nobody comes in so many seconds.
    """
    from engine.replay.drawing import RecordedDrawing
    from engine.workload import workload
    from eval.fidelity.runs import Case

    config = workload("steady", load=load, duration_s=seconds, max_tokens=96)
    draw = RecordedDrawing(replay, config, held_out=True)

    def requests() -> list[Request]:
        return draw(np.random.default_rng((seed, 7)))

    if not requests():
        raise UserError(
            f"no request comes within {seconds:g} s at {load_name(load)} (seed {seed}); give more "
            "--seconds"
        )
    return Case(load_name(load), requests, False)


def first(case: Case, requests: int) -> Case:
    """The first requests of a case, as they come."""
    return case._replace(
        name=f"first {requests} at {case.name}", requests=lambda: case.requests()[:requests]
    )


def load_name(load: float) -> str:
    """How a load is called."""
    return f"{load:.0%} load"
