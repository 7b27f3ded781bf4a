"""`python -m eval.fidelity`: the tables of live against replay, and their picture."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.errors import UserError
from eval.fidelity.scope import Scope, measured, servers


def parser() -> argparse.ArgumentParser:
    """The command line."""
    of = Scope()
    made = argparse.ArgumentParser(
        prog="python -m eval.fidelity",
        description="Serve the same requests live and on replay, compare figure by figure, and "
        "see whether both rank controllers alike. Let nothing else run meanwhile.",
    )
    add = made.add_argument
    add("--controllers", nargs="+", default=list(of.controllers), help="by name (%(default)s)")
    add("--loads", nargs="*", type=float, default=list(of.loads), help="× capacity (%(default)s)")
    add("--seconds", type=float, default=of.seconds, help="of arrivals a run (%(default)s)")
    add("--drained", type=int, default=of.drained, help="requests that come at once (%(default)s)")
    add("--live-runs", type=int, default=of.live_runs, help="of a case, at least 2 (%(default)s)")
    add("--blocks", type=int, default=of.blocks, help="to rank by, 0: no ranking (%(default)s)")
    add("--block-requests", type=int, default=of.block_requests, help="of each (%(default)s)")
    add(
        "--measure-profile",
        action="store_true",
        help="replay by a profile that is measured between the live runs",
    )
    add(
        "--calibrate",
        action="store_true",
        help="make every stage on replay as slow as known passes were between the live runs, "
        "interruptions included: what is left of an error is the model's",
    )
    add("--save-profile", type=Path, metavar="FILE", help="where that profile goes")
    add("--stages", action="store_true", help="tell where an iteration's time goes as well")
    add("--recording", type=Path, help="folder; none: the one that ships with DraftGym")
    add("--profile", type=Path, help="hardware profile of this machine, else the shipped one")
    add("--seed", type=int, default=of.seed, help="of the arrivals (%(default)s)")
    add("--out", type=Path, help="where the tables go as JSON; none: nowhere")
    add("--picture", type=Path, metavar="FILE", help="where the picture goes as SVG")
    return made


def main(argv: Sequence[str]) -> int:
    """Run and print; 0 when all that is judged holds, 1 when not, 2 for bad input."""
    options = parser().parse_args(argv)
    try:
        return run(options)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    """The runs that the options name; raises UserError."""
    scope = Scope(
        controllers=tuple(options.controllers),
        loads=tuple(options.loads),
        seconds=options.seconds,
        drained=options.drained,
        live_runs=options.live_runs,
        blocks=options.blocks,
        block_requests=options.block_requests,
        measure_profile=options.measure_profile,
        calibrate=options.calibrate,
        recording=options.recording,
        profile=options.profile,
        seed=options.seed,
    )
    scope.check()
    if options.save_profile is not None and not scope.measure_profile:
        raise UserError("--save-profile needs --measure-profile: without it there is none to save")

    def say(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    from engine.atomic_write import write_named
    from eval.fidelity.drawing import draw
    from eval.fidelity.telling import as_json, told
    from eval.versions import versions

    with servers(scope) as both:
        print(f"live:   {both.live.describe()}\nreplay: {both.replay.describe()}\n", flush=True)
        report = measured(scope, both, say)
    print("\n".join(told(report, options.stages)), flush=True)
    if options.out is not None:
        table = {"versions": versions(), "seed": scope.seed, **as_json(report)}
        write_named(options.out, json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    if options.picture is not None:
        write_named(options.picture, draw(report.lines, "Live against replay"))
    if options.save_profile is not None and report.profile is not None:
        report.profile.save(options.save_profile)
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
