"""A whole measurement: live in laps over all controllers, the machine timed between, then replay.

Live runs of one case under one controller are a lap apart, so that how far they lie apart tells
what the machine does in the meantime. Before every lap the same few passes are timed: they say how
far the machine drifted (`eval.fidelity.drift`), and with `calibrate` the stages of replay are made
as slow as these passes were, interruptions included. The profile by which replay runs may be
measured in the same minutes too, at the start, half-way and at the end. Which requests are served
was drawn before, by the profile that was there: both serve the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eval.fidelity.drift import Drift, calibrated, drifts
from eval.fidelity.figures import Line, compared, stages
from eval.fidelity.ranking import Block, Pair, ranked
from eval.fidelity.runs import Case, served_live, served_on_replay

if TYPE_CHECKING:
    from engine.profile.hardware_profile import HardwareProfile
    from engine.profile.live import ProfileRounds
    from engine.profile.measure import Timed
    from engine.protocol import Controller
    from engine.replay.server import ReplayServer
    from engine.serving import LiveServer

Say = Callable[[str], None]


class Machine:
    """Times the machine between the laps: a few passes often, and all of a profile's seldom."""

    def __init__(self, often: ProfileRounds, seldom: ProfileRounds | None = None) -> None:
        """Without `seldom` no profile is measured."""
        self._often, self._seldom = often, seldom

    @property
    def rounds(self) -> Sequence[Timed]:
        """Of the few passes."""
        return self._often.rounds

    def time(self, say: Say) -> None:
        """The few passes once more."""
        say("timing the machine")
        self._often.run()

    def measure(self, say: Say) -> None:
        """The profile's passes once more, if one is measured."""
        if self._seldom is not None:
            say("measuring the profile")
            self._seldom.run()

    def profile(self) -> HardwareProfile | None:
        """What was measured; None where nothing was."""
        return None if self._seldom is None else self._seldom.profile()


class Told(NamedTuple):
    """A line of the table."""

    case: str
    controller: str
    line: Line
    judged: bool


@dataclass
class Report:
    """What came out."""

    lines: list[Told] = field(default_factory=list)
    stages: list[Told] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    drift: list[Drift] = field(default_factory=list)
    profile: HardwareProfile | None = None
    """By which replay ran, before it was calibrated."""

    @property
    def judged(self) -> list[Told]:
        """Lines with a bar."""
        return [told for told in self.lines if told.judged]

    @property
    def missed(self) -> int:
        """Judged lines and pairs that do not hold."""
        return sum(not t.line.holds for t in self.judged) + sum(not p.holds for p in self.pairs)


@dataclass(frozen=True)
class Course:
    """What is served: cases to be compared figure by figure, and blocks to rank controllers by."""

    controllers: Sequence[Controller]
    cases: Sequence[Case]
    blocks: Sequence[Case]
    live_runs: int = 2
    reported: frozenset[str] = frozenset()
    """Cases that are told and not judged."""
    calibrate: bool = False
    seed: int = 0

    def run(self, live: LiveServer, replay: ReplayServer, machine: Machine, say: Say) -> Report:
        """Serve it all; `machine` is timed in between, `say` is told what is under way."""
        order = np.random.default_rng((self.seed, 1))
        laps = [case for case in self.cases for _ in range(self.live_runs)] + [*self.blocks]
        served: list[Block] = []
        for number, case in enumerate(laps):
            if number in (0, len(laps) // 2):
                machine.measure(say)
            machine.time(say)
            is_block = number >= len(laps) - len(self.blocks)
            turns = np.arange(len(self.controllers))
            made = {}
            for turn in (order.permutation(turns) if is_block else turns).tolist():
                controller = self.controllers[turn]
                say(f"live, lap {number + 1} of {len(laps)}, {case.name}: {controller.name}")
                made[controller.name] = served_live(live, replay, controller, case)
            served.append(
                {controller.name: made[controller.name] for controller in self.controllers}
            )
        machine.measure(say)
        machine.time(say)
        profile = machine.profile() or replay.profile
        report = Report(profile=profile, drift=drifts(machine.rounds, profile))
        if self.calibrate:
            profile = calibrated(profile, report.drift)
        here = on_profile(replay, profile, live)
        say("replay")
        for index, case in enumerate(self.cases):
            self._compare(report, here, case, served[index * self.live_runs :][: self.live_runs])
        if self.blocks:
            on_replay = [
                {c.name: served_on_replay(here, c, block) for c in self.controllers}
                for block in self.blocks
            ]
            rng = np.random.default_rng(self.seed)
            report.pairs = ranked(served[-len(self.blocks) :], on_replay, rng)
        return report

    def _compare(
        self, report: Report, replay: ReplayServer, case: Case, laps: Sequence[Block]
    ) -> None:
        """Serve the case on replay too, and note every figure."""
        for controller in self.controllers:
            runs = [lap[controller.name] for lap in laps]
            replayed = served_on_replay(replay, controller, case)
            judged = case.name not in self.reported
            for line in compared(runs, replayed, case.is_drain):
                told = Told(case.name, controller.name, line, judged and line.is_judged)
                report.lines.append(told)
            for line in stages(runs, replayed):
                report.stages.append(Told(case.name, controller.name, line, False))


def on_profile(
    replay: ReplayServer, profile: HardwareProfile, live: LiveServer | None = None
) -> ReplayServer:
    """The recording on another profile, its sizes kept.

    With `live`, objectives are that server's: they are multiples of ordinary decoding's time, and
    attainment can only be compared where both are held to the same seconds.
    """
    from engine.replay.server import ReplayConfig, ReplayServer

    settings = replay.settings
    config = ReplayConfig(
        slots=settings.limits.slots,
        capacity_tokens=settings.capacity_tokens,
        decision_s=replay.decision_s,
    )
    made = ReplayServer(replay.manifest, replay.recording, profile, config)
    if live is not None:
        made.unloaded_tpot_s = live.unloaded_tpot_s
    return made


def at_once(case: Case, requests: int) -> Case:
    """The first requests of a case, all at time 0: what drains them is capacity."""
    return Case(
        "all at once",
        lambda: [replace(request, arrival_s=0.0) for request in case.requests()[:requests]],
        True,
    )
