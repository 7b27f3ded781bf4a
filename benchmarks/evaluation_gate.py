"""Whether the gate of `evaluate.py --against` errs as seldom, and finds as much, as it says.

A run of the test is ten held-out seeds of a minute at 0.8 × capacity on the pair that ships. All
seeds are served once, side by side on replay, and every judgement takes seeds of its own, so that
no two judgements share luck. The verdict is `eval.against`'s, which users get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import Result
from engine.classes import DEFAULT_CLASSES
from engine.profile.cost_model import Curve, PassCost
from engine.replay.capacity_trees import Tree
from engine.replay.drawing import RecordedDrawing
from engine.replay.fleet.fleet import Fleet
from engine.replay.server import DECISION_S, ReplayConfig, ReplayServer
from engine.request import Request, RequestRecord
from engine.workload import FIRST_HELD_OUT_SEED, episode_generator, workload
from eval.against import Change, changes
from eval.best_fixed import ENDLESS, best_tree
from eval.compare import ARRIVING, over
from eval.metrics import attainment, goodput_tps
from eval.scored import Scored

SEEDS, SECONDS = 10, 60.0
SELF_RUNS, QUICK_SELF_RUNS = 100, 20
SLOWER_RUNS, QUICK_SLOWER_RUNS = 10, 3
SLOWER = 1.05
AT_ONCE = 250  # episodes side by side
ONE = "the best fixed tree"


def self_compared(bench: Bench, _: str) -> Result:
    """Of a hundred comparisons with itself on other seeds, those in which it is called worse."""
    runs = QUICK_SELF_RUNS if bench.quick else SELF_RUNS
    test = GateTest.made()
    seeds = test.seeds(2 * runs * SEEDS)
    served = test.served(bench, test.server, seeds)
    halves = [served[i : i + SEEDS] for i in range(0, len(served), SEEDS)]
    rng = bench.rng()
    worse = [
        [change.says for change in judged(before, now, rng) if change.is_worse]
        for before, now in zip(halves[::2], halves[1::2], strict=True)
    ]
    flagged = sum(map(bool, worse))
    return Result(
        100.0 * flagged / runs,
        f"{flagged} of {runs}",
        f"{test.told}; {SEEDS} seeds of {SECONDS:g} s either side, no seed in two runs",
        {"runs": runs, "worse": worse},
    )


def slower_found(bench: Bench, _: str) -> Result:
    """Of ten runs on an engine whose every step takes 5 % longer, those found worse; same seeds."""
    runs = QUICK_SLOWER_RUNS if bench.quick else SLOWER_RUNS
    test = GateTest.made()
    seeds = test.seeds(runs * SEEDS)
    before, now = (test.served(bench, on, seeds) for on in (test.server, slower(test.server)))
    rng = bench.rng()
    found = [
        judged(before[i : i + SEEDS], now[i : i + SEEDS], rng) for i in range(0, len(seeds), SEEDS)
    ]
    worse = [[change.says for change in run if change.is_worse] for run in found]
    count = sum(map(bool, worse))
    lost = np.mean([change.interval.mean for run in found for change in run if _is_share(change)])
    return Result(
        10.0 * count / runs,
        f"{count} of {runs}",
        f"{test.told}; {SEEDS} seeds of {SECONDS:g} s, the same either side; attainment falls by "
        f"{-100.0 * lost:.1f} points on average",
        {"runs": runs, "worse": worse},
    )


class GateTest:
    """What is served: the pair that ships under steady load, by the tree that is best for it."""

    def __init__(self, server: ReplayServer, draw: RecordedDrawing, tree: Tree) -> None:
        self.server, self.draw, self.tree = server, draw, tree

    @classmethod
    def made(cls) -> GateTest:
        """Loaded, and the best tree swept."""
        server = ReplayServer.load(ReplayConfig())
        server.settings = replace(server.settings, horizon_s=SECONDS)
        config = over(workload("steady", max_tokens=96), ARRIVING * SECONDS)
        tree = best_tree(server, config, SECONDS, DEFAULT_CLASSES).tree
        return cls(server, RecordedDrawing(server, config, held_out=True), tree)

    @property
    def told(self) -> str:
        """Whose episodes, in words."""
        return f"{ONE}, {self.tree.spec}, at {self.draw.config.load:g} × capacity"

    def seeds(self, count: int) -> list[int]:
        """Held-out ones."""
        return list(range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + count))

    def served(
        self, bench: Bench, server: ReplayServer, seeds: Sequence[int]
    ) -> list[tuple[int, float, float]]:
        """Seed, attainment and goodput of every one."""
        found = []
        for start in range(0, len(seeds), AT_ONCE):
            chosen = seeds[start : start + AT_ONCE]
            episodes = [self.draw(episode_generator(seed)) for seed in chosen]
            for seed, records in zip(chosen, self._records(server, episodes), strict=True):
                found.append((seed, attainment(records), goodput_tps(records)))
            bench.say(f"gate: {len(found)} of {len(seeds)} episodes served")
        return found

    def _records(
        self, server: ReplayServer, episodes: Sequence[list[Request]]
    ) -> list[list[RequestRecord]]:
        fleet = Fleet(server, len(episodes))
        for replica, requests in enumerate(episodes):
            fleet.begin(replica, requests)
        fleet.serve(fleet.plan(*self.tree), ENDLESS)
        return [fleet.records(replica) for replica in range(len(episodes))]


def judged(
    before: Sequence[tuple[int, float, float]],
    now: Sequence[tuple[int, float, float]],
    rng: np.random.Generator,
) -> list[Change]:
    """What the gate says of one run against another."""
    return changes(_scored(now), _scored(before), rng)


def slower(server: ReplayServer, factor: float = SLOWER) -> ReplayServer:
    """The same engine with every stage of a step so much longer; what was promised stays."""
    of = server.profile
    profile = replace(
        of,
        verify=_pass(of.verify, factor),
        draft_first=_pass(of.draft_first, factor),
        draft_next=_pass(of.draft_next, factor),
        prefill=_pass(of.prefill, factor),
        host=_pass(of.host, factor),
    )
    config = ReplayConfig(decision_s=factor * DECISION_S)
    made = ReplayServer(server.manifest, server.recording, profile, config)
    made.settings, made.unloaded_tpot_s = server.settings, server.unloaded_tpot_s
    return made


def _pass(cost: PassCost, factor: float) -> PassCost:
    curve = cost.curve
    longer = Curve(
        factor * curve.base_s,
        curve.knots,
        tuple(factor * slope for slope in curve.slopes_s),
        curve.jumps_at,
        tuple(factor * jump for jump in curve.jumps_s),
    )
    return PassCost(
        longer, factor * cost.kv_token_s, factor * cost.attended_s, factor * cost.request_s
    )


def _scored(runs: Sequence[tuple[int, float, float]]) -> Scored:
    figures = {
        "attainment": {("", seed): share for seed, share, _ in runs},
        "goodput": {("", seed): tokens for seed, _, tokens in runs},
    }
    return Scored("the gate's test", "the run before", {ONE: figures})


def _is_share(change: Change) -> bool:
    return change.metric == "attainment"
