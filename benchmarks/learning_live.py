"""The exported controller on live, on this machine: whether it stands as it does on replay.

Against slack-priced and AdaServe, in paired blocks of shifting load at the load of
`learning_contest`. The same blocks are served on replay by the machine's own profile, many more of
them, and what replay shows there live must have the same way round. Regimes are shortened to fit a
block.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.learning_contest import found
from benchmarks.learning_subject import ADASERVE, OURS, SLACK_PRICED, subjects
from benchmarks.live_order import JUDGED, extent, on_live, priced
from engine.protocol import Controller
from eval.compare import ARRIVING, compare, over
from eval.runner import Comparison
from eval.statistics import paired_difference
from policies import registry
from train.config import Serving
from train.evaluation import served_workload

REPLAYED, QUICK_REPLAYED = 40, 4


def order(bench: Bench, _: str) -> Result:
    """Pairs and figures of which replay shows the order and live has it the other way round."""
    contest = found(bench)
    run = subjects(bench, contest)[0]
    specs = {OURS: str(run), SLACK_PRICED: SLACK_PRICED, ADASERVE: contest.adaserve}
    live_load = Serving(backend="live", workload="shifting", load=contest.load)
    on = on_live(bench, made(specs), served_workload(live_load))
    replayed = on_replay(bench, specs, contest.load)
    blocks, block_s = extent(bench)
    return judged(on, replayed, f"{blocks} blocks of {block_s:g} s", bench.rng())


def made(specs: dict[str, str]) -> dict[str, Controller]:
    """The controllers by label."""
    return {label: registry.make(spec) for label, spec in specs.items()}


def on_replay(bench: Bench, specs: dict[str, str], load: float) -> Comparison:
    """Blocks of the same length on the live server's stand-in."""
    from engine.replay.capacity_live import stand_in
    from engine.replay.drawing import RecordedDrawing

    _, block_s = extent(bench)
    with priced(bench) as server:
        replay = stand_in(server)
    work = over(served_workload(Serving(workload="shifting", load=load)), ARRIVING * block_s)
    draw = RecordedDrawing(replay, work, held_out=True)
    blocks = QUICK_REPLAYED if bench.quick else REPLAYED
    bench.say(f"replay: {blocks} blocks")
    return compare(replay, draw, made(specs), blocks, block_s)


def judged(on: Comparison, replayed: Comparison, extent: str, rng: np.random.Generator) -> Result:
    """How many of the orders that replay shows live has the other way round, by its means."""
    told: dict[str, Any] = {}
    wrong, shown, confirmed = [], 0, 0
    for one, other in combinations(on.runs, 2):
        for name, figure in JUDGED.items():
            there, here = (
                paired_difference(of.values(one, figure), of.values(other, figure), rng)
                for of in (replayed, on)
            )
            pair = f"{one} less {other}, {name}"
            told[pair] = {"replay": vars(there), "live": vars(here)}
            if not there.excludes_zero:
                continue
            shown += 1
            if here.mean * there.mean < 0:
                wrong.append(pair)
            confirmed += here.excludes_zero and here.mean * there.mean > 0
    if not shown:
        raise UnmeasuredError("replay shows no difference in these blocks, so there is no order")
    lines = [
        f"{pair}: live {_told(of['live'])}, replay {_told(of['replay'])}"
        for pair, of in told.items()
    ]
    return Result(
        float(len(wrong)),
        f"{len(wrong)} of {shown}",
        note=f"{extent}; live shows {confirmed} of the {shown} by itself; " + "; ".join(lines),
        raw={"pairs": told},
        broken="" if confirmed else "live shows none of them",
    )


def _told(of: dict[str, float]) -> str:
    return f"{of['mean']:+.1f} [{of['low']:.1f}, {of['high']:.1f}]"
