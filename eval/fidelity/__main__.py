"""`python -m eval.fidelity`: the table of live against replay, and its picture."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import UserError
from eval.fidelity.figures import Line

if TYPE_CHECKING:
    from engine.replay.server import ReplayServer
    from engine.request import Request
    from eval.fidelity.runs import Case

CONTROLLERS = ("autoregressive", "chain(4)", "eagle3(3,4,8)", "sglang-ema")
LOADS = (0.5, 0.85, 0.95)
REPORTED = 0.95
"""A load at which figures are told and not judged: queues there hang on the last few per cent."""
DRAINED_REQUESTS = 24


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m eval.fidelity",
        description="Serve the same requests live and on replay, and compare figure by figure.",
    )
    add = made.add_argument
    add("--controllers", nargs="+", default=list(CONTROLLERS), help="by name (%(default)s)")
    add("--loads", nargs="+", type=float, default=list(LOADS), help="× capacity (%(default)s)")
    add("--seconds", type=float, default=20.0, help="of arrivals a run (%(default)s)")
    add("--live-runs", type=int, default=2, help="of every case, at least 2 (%(default)s)")
    add("--stages", action="store_true", help="tell where an iteration's time goes as well")
    add("--recording", type=Path, help="folder; none: the one that ships with DraftGym")
    add("--profile", type=Path, help="hardware profile of this machine, else the shipped one")
    add("--seed", type=int, default=0, help="of the arrivals (%(default)s)")
    add("--out", type=Path, help="where the table goes as JSON; none: nowhere")
    return made


def main(argv: Sequence[str]) -> int:
    """Run and print; 0 when every judged figure holds, 1 when one does not, 2 for bad input."""
    options = parser().parse_args(argv)
    try:
        return run(options)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def run(options: argparse.Namespace) -> int:
    """The runs that the options name; raises UserError."""
    from engine.atomic_write import write_named
    from engine.replay.server import ReplayConfig, ReplayServer
    from engine.serving import LiveConfig, LiveServer
    from eval.fidelity.figures import compared, stages
    from eval.fidelity.runs import served_on_both
    from eval.versions import versions
    from policies import registry

    if options.live_runs < 2 or not 0 < options.seconds < float("inf"):
        raise UserError(
            f"--live-runs {options.live_runs} --seconds {options.seconds:g}: expected at least 2 "
            "runs, to know how far live runs lie apart, and seconds above 0"
        )
    replay = ReplayServer.load(ReplayConfig(recording=options.recording, profile=options.profile))
    controllers = [registry.make(spec) for spec in options.controllers]
    cases = drawn_cases(replay, options.loads, options.seconds, options.seed)
    limits = replay.settings.limits
    live = LiveServer.load(
        LiveConfig(
            replay.name,
            dtype=replay.manifest.dtype,
            slots=limits.slots,
            capacity_tokens=replay.settings.capacity_tokens,
        )
    )
    print(f"live:   {live.describe()}\nreplay: {replay.describe()}\n", flush=True)
    print("| case | controller | figure | live | replay | error | live runs apart | bar | holds |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |", flush=True)
    rows, all_hold = [], True
    for case in cases:
        for controller in controllers:
            runs, replayed = served_on_both(live, replay, controller, case, options.live_runs)
            for line in compared(runs, replayed, case.is_drain):
                judged = case.name != load_name(REPORTED)
                all_hold &= line.holds or not judged
                print(shown(case.name, controller.name, line, judged), flush=True)
                rows.append({"case": case.name, "controller": controller.name, **asdict(line)})
            for line in stages(runs, replayed) if options.stages else ():
                print(shown(case.name, controller.name, line, judged=False), flush=True)
    if options.out is not None:
        table = {"versions": versions(), "seed": options.seed, "lines": rows}
        write_named(options.out, json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    return 0 if all_hold else 1


def drawn_cases(
    replay: ReplayServer, loads: Sequence[float], seconds: float, seed: int
) -> list[Case]:
    """Steady arrivals at every load, and a number of requests that all come at once."""
    from engine.replay.drawing import RecordedDrawing
    from engine.workload import workload
    from eval.fidelity.runs import Case

    def drawn(load: float) -> Case:
        config = workload("steady", load=load, duration_s=seconds, max_tokens=96)
        draw = RecordedDrawing(replay, config, held_out=True)
        return Case(load_name(load), lambda: draw(np.random.default_rng((seed, 7))), False)

    cases = [drawn(load) for load in loads]
    busy = drawn(2.0)

    def at_once() -> list[Request]:
        return [replace(r, arrival_s=0.0) for r in busy.requests()[:DRAINED_REQUESTS]]

    return [*cases, Case("all at once", at_once, True)]


def load_name(load: float) -> str:
    """How a load is called."""
    return f"{load:.0%} load"


def shown(case: str, controller: str, line: Line, judged: bool) -> str:
    """A line of the table."""
    holds = ("yes" if line.holds else "NO") if judged else "reported"
    unit = 1e3 if "T" in line.figure or "time" in line.figure else 1.0
    return (
        f"| {case} | {controller} | {line.figure}{' (ms)' if unit > 1 else ''} "
        f"| {unit * line.live:.3g} | {unit * line.replay:.3g} | {line.error:+.1%} "
        f"| {line.noise:.1%} | {line.bar:.1%} | {holds} |"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
