"""A whole run of `train.py`: load, train, compare, export, and say what to type next.

Composes the others; each step's result stands in the run folder before the next begins.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.atomic_write import write_atomic
from engine.workload import PromptSet, WorkloadConfig
from eval.contenders import named
from eval.versions import hardware
from policies.learned import LearnedController
from train import evaluation
from train.command_line import crash_reports
from train.config import TrainConfig
from train.interrupt import StopRequest
from train.progress import ProgressLine, clock, new_console
from train.run_folder import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

    from engine.drawing import Draw
    from engine.server import Server
    from eval.table import Report
    from train.algorithms.arguments import Arguments
    from train.algorithms.base import Learner
    from train.curriculum import Curriculum

RESULTS = "results.json"


def train(
    config: TrainConfig,
    load_server: evaluation.LoadServer = evaluation.load_server,
    console: Console | None = None,
    stop: StopRequest | None = None,
) -> RunFolder:
    """Run all of it; after a stop, the folder is left marked unfinished and can be resumed.

    The server is closed at the end, whatever comes. Raises UserError for what the user can mend and
    CrashError for a bug, whose report then stands in the run folder.
    """
    console = console or new_console()
    stop = stop or StopRequest()
    serving = config.serving
    work = evaluation.served_workload(serving)
    PromptSet.load(serving.prompts)  # what is wrong with them is told before seconds of loading
    baselines = named(config.evaluation.baselines, "--baselines")
    resumed = RunFolder.open(config.resume) if config.resume is not None else None
    loading = "a recording" if serving.backend == "replay" else "and measuring the target"
    console.print(f"loading {loading} …", style="dim")
    with evaluation.closing(load_server(serving)) as server:
        return _run(config, load_server, server, work, baselines, resumed, console, stop)


def _run(
    config: TrainConfig,
    load_server: evaluation.LoadServer,
    server: Server,
    work: WorkloadConfig,
    baselines: dict[str, Any],
    resumed: RunFolder | None,
    console: Console,
    stop: StopRequest,
) -> RunFolder:
    """What follows the loading."""
    from train.algorithms.arguments import arguments_of
    from train.training_draw import training_draw

    serving, arguments = config.serving, arguments_of(config)
    draw, curriculum = training_draw(server, work, config)
    draw(np.random.default_rng(config.seed))  # prompts that do not fit are told before training
    if resumed is None:
        run = RunFolder.create(config, datetime.now())
    else:
        run = resumed
        run.mark_unfinished("resumed")
        run.write_request(config)
    console.print(
        f"{evaluation.headline(server, serving, work)} · {run.path}",
        highlight=False,
        soft_wrap=True,
    )
    with crash_reports(run.path), stop:
        model = _train(
            server, draw, config, arguments, run, console, stop, curriculum, load_server
        )
        if stop.requested:
            return _stopped(run, "stopped while training", console)
        controller = _export(model, config, server, work, run, None)
        report = None
        if config.comparison[0]:
            controllers = {f"{controller.name} (this run)": controller, **baselines}
            try:
                report = _compare(server, config, controllers, console, stop)
            except evaluation.Stopped:
                return _stopped(run, "trained, not compared", console)
            run.write_json(RESULTS, _results(report, run))
            _baseline_lines(run.path, report, model.num_timesteps)
            # Once more, so that the card and the manifest say how good it is.
            _export(model, config, server, work, run, report)
        run.mark_done(datetime.now())
        _say_what_next(run, config, report, console)
    return run


def _train(
    server: Server,
    draw: Draw,
    config: TrainConfig,
    arguments: Arguments,
    run: RunFolder,
    console: Console,
    stop: StopRequest,
    curriculum: Curriculum | None,
    load_server: evaluation.LoadServer,
) -> Learner:
    from train.learning import train_model

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    with ProgressLine(console, "train", 1.0) as line:
        model = train_model(
            server, draw, config, arguments, run, line, stop, say, curriculum, load_server
        )
    done = f"{model.num_timesteps:,} decisions and {model.updates:,} updates"
    console.print(f"{done} in {clock(model.trained_s)} minutes", highlight=False)
    if not model.updates:
        needed, setting = model.first_update()
        console.print(
            f"nothing was learned: the first update needs {needed:,} decisions; train for longer "
            f"(--minutes), or lower {setting} (--set)"
        )
    return model


def _compare(
    server: Server,
    config: TrainConfig,
    controllers: dict[str, Any],
    console: Console,
    stop: StopRequest,
) -> Report:
    seeds, seconds = config.comparison
    report = evaluation.compare(
        server,
        config.serving,
        controllers,
        next(iter(controllers)),
        seeds,
        evaluation.seconds_a_run(seconds, seeds, len(controllers)),
        np.random.default_rng(config.seed),
        console,
        stop,
    )
    evaluation.show(report, console)
    return report


def _results(report: Report, run: RunFolder) -> dict[str, Any]:
    from eval import table

    stamp = json.loads((run.path / "versions.json").read_text(encoding="utf-8"))
    write_atomic(run.path / "results.md", table.as_markdown(report))
    return {**table.as_json(report), "command": sys.argv, "versions": stamp}


def _export(
    model: Learner,
    config: TrainConfig,
    server: Server,
    work: WorkloadConfig,
    run: RunFolder,
    report: Report | None,
) -> LearnedController:
    from train.export import export

    served = evaluation.headline(server, config.serving, work)
    training = training_figures(model, config, served, report) | {"observed": run.observed()}
    return export(model, run.controller, config.learning.decide_every, training)


def training_figures(
    model: Learner, config: TrainConfig, served: str, report: Report | None
) -> dict[str, Any]:
    """Provenance and figures for manifest and card, JSON types only."""
    learned = bool(model.updates) or model.imitated is not None
    untrained = [] if learned else ["it was exported before its first update: untrained"]
    return {
        "algorithm": config.learning.policy,
        "made": f"{datetime.now():%Y-%m-%d %H:%M}",
        "decisions": int(model.num_timesteps),
        "updates": model.updates,
        "imitated": model.imitated,
        "seconds": round(float(model.trained_s), 1),
        "seed": config.seed,
        "served": served,
        "machine": _machine(),
        "verdict": report.verdict if report is not None else "not compared with anything yet.",
        "notes": [*untrained, *(report.notes if report is not None else [])],
    }


def _machine() -> str:
    found = hardware()
    names = ", ".join(found["gpus"]) or found["processor"]
    return f"{names}, {found['cores']} cores"


def _baseline_lines(folder: Path, report: Report, steps: int) -> None:
    """What all reached when compared, as level lines in TensorBoard beside the held-out curve."""
    from train.chart_lines import ChartLines

    lines = ChartLines(folder)
    for name, runs in report.comparison.runs.items():
        for tag, values in (
            ("eval/attainment", [r.metrics.attainment for r in runs]),
            ("eval/goodput_tps", [r.metrics.goodput_tps for r in runs]),
        ):
            known = [v for v in values if np.isfinite(v)]
            for step in (0, steps) if known else ():
                lines.writer(f"evaluated {name}").add_scalar(tag, float(np.mean(known)), step)
    lines.close()


def _stopped(run: RunFolder, state: str, console: Console) -> RunFolder:
    run.mark_unfinished(state)
    console.print(f"{state}; saved. Go on with:\n  python train.py --resume {run.path}")
    return run


def _say_what_next(
    run: RunFolder, config: TrainConfig, report: Report | None, console: Console
) -> None:
    serving, decisions = config.serving, config.learning.decisions
    more = "" if decisions is None else f" --decisions {2 * decisions}"
    lines = [
        f"controller  {run.controller}",
        *([f"results     {run.path / RESULTS}"] if report is not None else []),
        "next",
        f"  python evaluate.py --policy {run.path} chain eagle3 --workload {serving.workload} "
        "--seeds 10",
        f"  tensorboard --logdir {run.path}",
        f"  python train.py --resume {run.path} --minutes {2 * config.learning.minutes:g}{more}",
    ]
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
