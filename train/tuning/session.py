"""A whole run of `tune.py`: defaults, trials, the test of the winner, and what to type next.

Composes the others. Whatever stops it, the trials that are over stay in the study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from engine.atomic_write import write_atomic
from engine.server import Server
from policies import registry
from train import evaluation
from train.command_line import as_toml, crash_reports, leaves
from train.config import Evaluation, Serving
from train.progress import ProgressLine, new_console
from train.tuning import held_out, outcome, plots
from train.tuning.analytic import AnalyticSubject
from train.tuning.bench import Bench, held_out_instances, trial_instances
from train.tuning.figures import FIGURES, Figure
from train.tuning.judging import DEFAULTS, Judge, Subject, has_defaults, whole
from train.tuning.learned import LearnedSubject
from train.tuning.processes import Helpers, MakeJudge, SharedStop, judge_one, work
from train.tuning.search_space import distributions, in_words
from train.tuning.study import (
    StudyPlan,
    check_sampler,
    check_unchanged,
    end_orphans,
    mend_journal,
)
from train.tuning.study_folder import StudyFolder
from train.tuning.tune_config import TuneConfig

if TYPE_CHECKING:
    from optuna import Study
    from rich.console import Console

LoadServer = Callable[[Serving], Server]


def tune(
    config: TuneConfig,
    load_server: LoadServer = evaluation.load_server,
    console: Console | None = None,
    stop: SharedStop | None = None,
) -> StudyFolder:
    """Run all of it, or as far as a stop allows. `load_server` must be picklable for processes.

    Raises UserError for what the user can mend, CrashError for a bug.
    """
    console, stop = console or new_console(), stop or SharedStop()
    subject = subject_of(config, Path(), load_server)
    check_sampler(config.sampled_by, len(subject.space))
    for trace in {*config.served_traces, *config.test_traces}:
        evaluation.served_workload(replace(config.serving, workload=trace))
    folder, plan, study = _opened(config, subject)
    folder.write_asked(config)
    make_judge = partial(judging, config, folder.path, load_server)
    with crash_reports(folder.path), stop, make_judge() as judge:
        work_load = judge.bench.workload(config.served_traces[0])
        told = evaluation.headline(judge.bench.server, config.serving, work_load)
        console.print(f"{told} · {folder.path}", highlight=False, soft_wrap=True)
        with ProgressLine(console, "tune", config.trials) as line:
            progress = Progress(line, study, judge.figures[0], config.trials)
            judge.told = progress
            _search(config, plan, study, judge, make_judge, stop, progress, console)
        if not stop.requested:
            _conclude(config, folder, study, judge, stop, console)
        if stop.requested:
            console.print(
                f"stopped; every trial that is over is kept. Go on with:\n"
                f"  python tune.py --resume {folder.path}",
                highlight=False,
                soft_wrap=True,
            )
    return folder


def subject_of(config: TuneConfig, folder: Path, load_server: LoadServer) -> Subject:
    """What is tuned. Raises UserError where there is nothing to tune."""
    if config.is_learned:
        return LearnedSubject(config, folder, load_server)
    return AnalyticSubject.of(config.policy, "accuracy" in config.objectives)


@contextmanager
def judging(config: TuneConfig, folder: Path, load_server: LoadServer) -> Iterator[Judge]:
    """A judge with a server of its own, as each process has one."""
    with evaluation.closing(load_server(config.serving)) as server:
        yield Judge(
            subject_of(config, folder, load_server),
            Bench(server, config.serving, config.seconds),
            trial_instances(config.served_traces, config.seeds),
            [FIGURES[name] for name in config.objectives],
            config.pruned_by,
            config.seed,
        )


class Progress:
    """Told the share of the trial under way here, it shows how far the study is and its best."""

    def __init__(self, line: ProgressLine, study: Study, figure: Figure, trials: int) -> None:
        self.line, self.study, self.figure, self.trials = line, study, figure, trials
        self._began_s = monotonic()
        self._before = self._over()

    def __call__(self, share: float = 0.0) -> None:
        """Show it."""
        over = self._over()
        done = over - self._before + share
        rest = max(self.trials - over - share, 0.0)
        left_s = (monotonic() - self._began_s) / done * rest if done > 1 else None
        known = [t.values[0] for t in self.study.get_trials(deepcopy=False) if whole(t)]
        best = (max if self.figure.higher_is_better else min)(known, default=0.0)
        parts = f"{over} of {self.trials} trials", f"best {self.figure.told(best)}"
        self.line.update(over + share, *parts, left_s=left_s)

    def _over(self) -> int:
        return sum(t.state.is_finished() for t in self.study.get_trials(deepcopy=False))


def _opened(config: TuneConfig, subject: Subject) -> tuple[StudyFolder, StudyPlan, Study]:
    """A new study, or the one to go on with. Raises UserError."""
    resumed = config.resume is not None
    folder = (
        StudyFolder.create(config, datetime.now())
        if config.resume is None
        else StudyFolder.open(config.resume)
    )
    runs = config.seeds * len(config.served_traces)
    plan = StudyPlan(
        name=folder.path.resolve().name,
        folder=folder.path,
        journal=folder.journal,
        storage=config.storage,
        directions=tuple(FIGURES[name].direction for name in config.objectives),
        sampler=config.sampled_by,
        pruner=config.pruned_by,
        trials=config.trials,
        reports=subject.rungs if subject.rungs > 1 else runs,
        seed=config.seed,
    )
    asked = {"searched": in_words(subject.space), "served": _served(config)}
    if not resumed:
        return folder, plan, plan.create(asked)
    mend_journal(folder.journal)
    study = plan.open()
    check_unchanged(study, asked, folder.path)
    end_orphans(study)
    return folder, plan, study


def _served(config: TuneConfig) -> dict[str, str]:
    """What trials are compared under: all that must stay the same for them to be comparable."""
    names = ["policy", "objectives", "seeds", "seconds"]
    names += ["minutes", "seed"] if config.is_learned else []
    usual = leaves(Serving())
    serving = {k: str(v) for k, v in leaves(config.serving).items() if v != usual[k]}
    found = {name: str(getattr(config, name)) for name in names}
    return {**serving, **found, "traces": str(config.served_traces), "pruner": config.pruned_by}


def _search(
    config: TuneConfig,
    plan: StudyPlan,
    study: Study,
    judge: Judge,
    make_judge: MakeJudge,
    stop: SharedStop,
    progress: Progress,
    console: Console,
) -> None:
    """The defaults first, by themselves, then the rest, in as many processes as asked for."""
    space = judge.subject.space
    if not has_defaults(study):
        study.set_user_attr(DEFAULTS, {})  # killed before it was told, their trial is lost
        study.enqueue_trial(judge.subject.defaults)
        judge_one(study, study.ask(distributions(space)), judge)
        if not has_defaults(study):
            return  # why is told in the end
    others = 0 if stop.requested else config.processes - 1
    with Helpers(plan, space, make_judge, others, stop) as helpers:
        work(plan, study, space, judge, lambda: stop.requested)
        for code in helpers.wait(progress):
            console.print(f"a process ended with exit code {code}; the others went on")
    end_orphans(study)
    progress()


def _conclude(
    config: TuneConfig,
    folder: StudyFolder,
    study: Study,
    judge: Judge,
    stop: SharedStop,
    console: Console,
) -> None:
    """Winner, test, files, and what to type next."""
    subject, figures = judge.subject, judge.figures
    found = outcome.Outcome.of(study, figures)
    tested: list[held_out.HeldOutGain] = []
    if found.is_improved:
        try:
            tested = _test(config, judge, found, stop, console)
        except evaluation.Stopped:
            return
    best = outcome.write_best(folder, config, subject, found)
    outcome.write_results(folder, config, subject, study, figures, found, tested)
    drawn, left_out = plots.draw(study, figures, folder.path / "plots")
    lines = outcome.in_words(best, found, figures, tested)
    lines += [f"plots left out: {what}" for what in left_out]
    lines += [f"results  {folder.path / outcome.RESULTS}"]
    lines += [f"plots    {folder.path / 'plots'}"] if drawn else []
    lines += ["next", f"  python evaluate.py --config {folder.best}"]
    if isinstance(subject, LearnedSubject):
        training = folder.path / "train.toml"
        full = replace(subject.training(found.winner.params), evaluation=Evaluation())
        write_atomic(training, as_toml(full))
        lines.append(f"  python train.py --config {training} --minutes 4")
    lines.append(f"  python tune.py --resume {folder.path} --trials {2 * config.trials}")
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _test(
    config: TuneConfig,
    judge: Judge,
    found: outcome.Outcome,
    stop: SharedStop,
    console: Console,
) -> list[held_out.HeldOutGain]:
    """Winner against defaults on held-out arrivals. Raises Stopped."""
    subject = judge.subject
    winner, defaults = (
        registry.make(subject.policy(t.params, t.number)) for t in (found.winner, found.defaults)
    )
    instances = held_out_instances(config.test_traces, config.held_out_seeds)
    with ProgressLine(console, "test", 2 * len(instances)) as line:

        def announce(done: int) -> None:
            if stop.requested:
                raise evaluation.Stopped
            line.update(done, f"run {done + 1} of {2 * len(instances)}")

        rng = np.random.default_rng(config.seed)
        tested = held_out.compare(
            judge.bench, winner, defaults, instances, judge.figures, rng, announce
        )
        line.update(2 * len(instances), f"{2 * len(instances)} runs")
    return tested
