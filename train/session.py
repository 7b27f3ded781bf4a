"""A whole run of `train.py`: load, train, compare, export, and say what to type next.

Composes the others; each step's result stands in the run folder before the next begins.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.atomic_write import write_atomic
from engine.replay.server import ReplayServer
from engine.workload import PromptSet, WorkloadConfig
from eval.contenders import named
from eval.parts import typed
from eval.versions import hardware
from policies.learned import LearnedController
from train import evaluation, fine_tuning
from train.command_line import crash_reports
from train.config import Serving, TrainConfig
from train.interrupt import StopRequest
from train.progress import ProgressLine, clock, new_console
from train.run_folder import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

    from engine.drawing import Draw
    from engine.server import Server
    from engine.serving import LiveServer
    from eval.table import Report
    from train.algorithms.base import Learner
    from train.curriculum import Curriculum

RESULTS = "results.json"
COUNTED = ("num_timesteps", "updates")


@dataclass(frozen=True)
class Session:
    """What all steps of a run have in common."""

    config: TrainConfig
    work: WorkloadConfig
    server: Server
    live: LiveServer | None
    """On which a policy trained on replay goes on; None: it does not."""
    load_server: evaluation.LoadServer
    console: Console
    stop: StopRequest

    def say(self, text: str) -> None:
        """A line that is not broken."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def train(
    config: TrainConfig,
    load_server: evaluation.LoadServer = evaluation.load_server,
    console: Console | None = None,
    stop: StopRequest | None = None,
) -> RunFolder:
    """Run all of it; after a stop, the folder is left marked unfinished and can be resumed.

    Servers are closed at the end, whatever comes. Several live engines load theirs by `load_server`
    in processes of their own. Raises UserError for what the user can mend and CrashError for a bug,
    whose report then stands in the run folder.
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
    with contextlib.ExitStack() as loaded:
        server = loaded.enter_context(evaluation.closing(load_server(serving)))
        live = None
        if config.learning.fine_tune_live is not None:
            assert isinstance(server, ReplayServer), "config.check says so"
            console.print("loading and measuring the recorded target …", style="dim")
            live = fine_tuning.load_live(server, config, work, load_server)
            loaded.enter_context(evaluation.closing(live))
        session = Session(config, work, server, live, load_server, console, stop)
        return _run(session, baselines, resumed)


def _run(session: Session, baselines: dict[str, Any], resumed: RunFolder | None) -> RunFolder:
    """What follows the loading."""
    from train.training_draw import training_draw

    config, server, stop = session.config, session.server, session.stop
    draw, curriculum = training_draw(server, session.work, config)
    draw(np.random.default_rng(config.seed))  # prompts that do not fit are told before training
    if resumed is None:
        run = RunFolder.create(config, datetime.now())
    else:
        run = resumed
        run.mark_unfinished("resumed")
        run.write_request(config)
    session.say(f"{evaluation.headline(server, config.serving, session.work)} · {run.path}")
    with crash_reports(run.path), stop:
        model = _train(session, draw, run, curriculum)
        if stop.requested:
            return _stopped(session, run, "stopped while training")
        model = _winner(session, model, run)
        controller = _export(session, model, run, None)
        report = None
        if config.comparison[0]:
            controllers = {f"{controller.name} (this run)": controller, **baselines}
            try:
                report = _compare(session, controllers)
            except evaluation.Stopped:
                return _stopped(session, run, "trained, not compared")
            run.write_json(RESULTS, _results(report, run, config.serving))
            _baseline_lines(run.path, report, model.num_timesteps)
            # Once more, so that the card and the manifest say how good it is.
            _export(session, model, run, report)
        if session.live is not None and not _fine_tune(session, run, model, controller, report):
            return run
        run.mark_done(datetime.now())
        _say_what_next(session, run, report)
    return run


def _train(session: Session, draw: Draw, run: RunFolder, curriculum: Curriculum | None) -> Learner:
    from train.algorithms.arguments import arguments_of
    from train.learning import train_model

    config = session.config
    with ProgressLine(session.console, "train", 1.0) as line:
        model = train_model(
            session.server, draw, config, arguments_of(config), run, line, session.stop,
            session.say, curriculum, session.load_server,
        )  # fmt: skip
    done = f"{model.num_timesteps:,} decisions and {model.updates:,} updates"
    session.say(f"{done} in {clock(model.trained_s)} minutes")
    if not model.updates:
        needed, setting = model.first_update()
        beyond = "" if model.imitated is None else f" beyond what {config.learning.imitate} does"
        session.say(
            f"nothing was learned{beyond}: the first update needs {needed:,} decisions; train for "
            f"longer (--minutes), or lower {setting} (--set)"
        )
    return model


def _winner(session: Session, model: Learner, run: RunFolder) -> Learner:
    """The model that is compared and exported, of the last one and the best (`RunFolder.winner`).

    Training goes on from the last one whichever it is.
    """
    from train.algorithms.registry import ALGORITHMS
    from train.saved_model import load_model

    config = session.config
    if run.winner(config) != run.best:
        return model
    best = load_model(run.best, ALGORITHMS[config.learning.policy])
    if best.num_timesteps == model.num_timesteps:
        return model
    # How long it learned is told by its decisions; the seconds are the run's.
    best.trained_s = model.trained_s
    session.say(f"exported as of decision {best.num_timesteps:,}, the best by held-out episodes")
    return best


def _fine_tune(
    session: Session,
    run: RunFolder,
    trained: Learner,
    before: LearnedController,
    report: Report | None,
) -> bool:
    """Go on with `trained` on live, export that, and say what was lost; False after a stop.

    `before` is the exported policy as it came from replay, and `report` its comparison there.
    """
    live, replay, config = session.live, session.server, session.config
    assert live is not None and isinstance(replay, ReplayServer)
    session.say(evaluation.headline(live, config.serving, session.work))
    with ProgressLine(session.console, "fine-tune", 1.0) as line:
        model = fine_tuning.fine_tune(
            replay, live, session.work, trained, config, run, line, session.stop
        )
    decisions, updates = (getattr(model, of) - getattr(trained, of) for of in COUNTED)
    session.say(
        f"{decisions:,} decisions and {updates:,} updates live in "
        f"{clock(model.trained_s - trained.trained_s)} minutes"
    )
    if session.stop.requested:
        _stopped(session, run, "stopped while fine-tuning")
        return False
    if not updates:
        session.say(
            "nothing was learned live: no update came; raise --fine-tune-live, or lower n_steps or "
            "batch_size (--set)"
        )
    served = evaluation.headline(live, config.serving, session.work)
    tuned: dict[str, Any] = {"decisions": decisions, "updates": updates, "served": served}
    after = _export(session, model, run, report, tuned)
    if not config.comparison[0]:
        return True
    names = f"{before.name} before", f"{after.name} fine-tuned (this run)"
    controllers = dict(zip(names, (before, after), strict=True))
    try:
        on_live, lost = fine_tuning.compare(
            replay, live, session.work, config, controllers, session.console, session.stop
        )
    except evaluation.Stopped:
        _stopped(session, run, "fine-tuned, not compared")
        return False
    results = json.loads((run.path / RESULTS).read_text(encoding="utf-8"))
    found = fine_tuning.results(on_live, lost) | tuned
    run.write_json(RESULTS, results | {"fine_tuning": found})
    written = (run.path / "results.md").read_text(encoding="utf-8")
    write_atomic(run.path / "results.md", f"{written}\n{fine_tuning.in_markdown(on_live, lost)}")
    _export(session, model, run, report, tuned | {"verdict": f"{on_live.verdict} {lost.verdict}"})
    return True


def _compare(session: Session, controllers: dict[str, Any]) -> Report:
    seeds, seconds = session.config.comparison
    report = evaluation.compare(
        session.server,
        session.config.serving,
        controllers,
        next(iter(controllers)),
        seeds,
        evaluation.seconds_a_run(seconds, seeds, len(controllers)),
        np.random.default_rng(session.config.seed),
        session.console,
        session.stop,
    )
    evaluation.show(report, session.console)
    return report


def _results(report: Report, run: RunFolder, serving: Serving) -> dict[str, Any]:
    from eval import table

    served = evaluation.departures(serving)
    stamp = json.loads((run.path / "versions.json").read_text(encoding="utf-8"))
    write_atomic(run.path / "results.md", table.as_markdown(report))
    command = typed("train.py", sys.argv[1:])
    return {**table.as_json(report), "served": served, "command": command, "versions": stamp}


def _export(
    session: Session,
    model: Learner,
    run: RunFolder,
    report: Report | None,
    tuned: dict[str, Any] | None = None,
) -> LearnedController:
    """`tuned` says what was done live after `report`, where something was."""
    from train.export import export
    from train.task import task_of

    config = session.config
    served = evaluation.headline(session.server, config.serving, session.work)
    training = training_figures(model, config, served, report)
    training |= {"observed": run.observed(), "fine_tuned": tuned}
    observation = task_of(config.learning.kind, config.preset).observation
    return export(
        model, run.controller, config.learning.decide_every, training, observation=observation
    )


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


def _stopped(session: Session, run: RunFolder, state: str) -> RunFolder:
    run.mark_unfinished(state)
    session.console.print(f"{state}; saved. Go on with:\n  python train.py --resume {run.path}")
    return run


def _say_what_next(session: Session, run: RunFolder, report: Report | None) -> None:
    serving, learning = session.config.serving, session.config.learning
    more = "" if learning.decisions is None else f" --decisions {2 * learning.decisions}"
    where = "" if session.live is None else " --backend live"
    slots = "" if serving.slots is None else f" --slots {serving.slots}"
    written = []
    if report is not None:
        written = [f"results     {run.path / RESULTS}", evaluation.report_line(run.path)]
    lines = [
        f"controller  {run.controller}",
        *written,
        "next",
        f"  python evaluate.py --policy {run.path} chain eagle3{where} "
        f"--workload {serving.workload}{slots} --seeds 10",
        f"  tensorboard --logdir {run.path}",
        f"  python train.py --resume {run.path} --minutes {2 * learning.minutes:g}{more}",
    ]
    session.say("\n".join(lines))
