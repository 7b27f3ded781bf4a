"""Studies: approaching a known optimum, shared, resumed, changed, and one from end to end."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest
from rich.console import Console

from engine.errors import UserError
from policies.adaptivespec import AdaptiveSpecTree
from policies.tunable import Tunable
from tests.synthetic_tuning import ASKED, SPACE, hill_judge, meeting_judge, plan_of, two_judge
from tests.tiny_recording import replay_server
from train.command_line import parse_with_files
from train.config import Evaluation, Serving, TrainConfig
from train.evaluate_config import EvaluateConfig
from train.tuning import plots, session
from train.tuning.figures import FIGURES
from train.tuning.outcome import pareto
from train.tuning.processes import REASON, Helpers, MakeJudge, SharedStop, begun, work
from train.tuning.search_space import in_words
from train.tuning.study import (
    StudyPlan,
    check_unchanged,
    end_orphans,
    mend_journal,
    this_process,
)
from train.tuning.study_folder import StudyFolder, settings_files
from train.tuning.tune_config import TuneConfig

States = optuna.trial.TrialState


def searched(plan: StudyPlan, make_judge: MakeJudge = hill_judge) -> optuna.Study:
    study = plan.create(ASKED)
    with make_judge() as judge:
        work(plan, study, SPACE, judge, lambda: False)
    return study


# -- the search ------------------------------------------------------------------------------------


def test_tpe_approaches_the_optimum(tmp_path: Path) -> None:
    study = searched(plan_of(tmp_path, trials=36))
    values = [trial.values[0] for trial in study.trials]
    assert len(values) == 36
    assert max(values) > -0.02
    assert max(values[:8]) < -0.02  # before it has learned anything, luck does not get there


def test_the_pareto_set_is_that_of_brute_force(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, trials=30, sampler="nsga-ii", directions=("minimize", "minimize"))
    study = searched(plan, two_judge)
    points = {t.number: t.values for t in study.trials}
    front = [
        n
        for n, (a, b) in points.items()
        if not any(c <= a and d <= b and (c < a or d < b) for c, d in points.values())
    ]
    assert [t.number for t in pareto(study)] == front
    assert 1 < len(front) < len(points)


def test_a_failed_trial_is_kept_with_its_reason_and_others_go_on(tmp_path: Path) -> None:
    def judge(study: optuna.Study, trial: optuna.Trial) -> list[float]:
        if trial.number == 1:
            raise UserError("short is above long")
        if trial.number == 2:
            raise ZeroDivisionError("the prompt was: secret")
        return [0.0]

    plan = plan_of(tmp_path, trials=4)
    study = plan.create(ASKED)
    work(plan, study, SPACE, judge, lambda: False)
    assert [t.state for t in study.trials] == [
        States.COMPLETE, States.FAIL, States.FAIL, States.COMPLETE,
    ]  # fmt: skip
    reasons = [t.user_attrs.get(REASON) for t in study.trials]
    assert reasons[1] == "short is above long"
    assert reasons[2] is not None and reasons[2].startswith("ZeroDivisionError in test_tuning")
    assert "secret" not in plan.journal.read_text()


def test_two_processes_share_one_journal(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, trials=24)
    study = plan.create(ASKED)
    both_here = multiprocessing.get_context("spawn").Barrier(2)  # else one might do them all
    make = partial(meeting_judge, both_here)
    with Helpers(plan, SPACE, make, 1, SharedStop()) as helpers, make() as judge:
        work(plan, study, SPACE, judge, lambda: False)
        assert helpers.wait(lambda: None) == []
    trials = study.get_trials()
    assert [t.number for t in trials] == list(range(24))
    assert all(t.state is States.COMPLETE for t in trials)
    assert len({t.user_attrs["process"] for t in trials}) == 2


def test_a_stop_finishes_the_trial_and_the_study_goes_on_later(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, trials=6)
    study = plan.create(ASKED)
    with hill_judge() as judge:
        work(plan, study, SPACE, judge, lambda: begun(study) >= 2)
        assert begun(study) == 2
        again = plan.open()
        work(plan, again, SPACE, judge, lambda: False)
    assert [t.state for t in again.trials] == [States.COMPLETE] * 6
    xs = [t.params["x"] for t in again.trials]
    assert len(set(xs)) == 6  # a sampler that began anew would repeat its first draws


# -- what is there already -------------------------------------------------------------------------


def test_a_changed_space_is_refused_by_what_differs(tmp_path: Path) -> None:
    study = plan_of(tmp_path).create(ASKED)
    check_unchanged(study, ASKED, tmp_path)
    other = in_words({**SPACE, "x": Tunable(-2.0, 3.0)})
    with pytest.raises(UserError, match=r"searched has changed since \(x was -2 to 2 and is -2 to"):
        check_unchanged(study, {**ASKED, "searched": other}, tmp_path)
    with pytest.raises(UserError, match=r"served has changed since \(seeds was 3 and is 4\)"):
        check_unchanged(study, {**ASKED, "served": {"seeds": "4"}}, tmp_path)


def test_what_a_kill_leaves_behind_is_mended(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, trials=3)
    study = searched(plan)
    dead, alive = study.ask(), study.ask()
    dead.set_user_attr("process", this_process().replace(str(os.getpid()), "999999999"))
    alive.set_user_attr("process", this_process())
    with plan.journal.open("ab") as file:
        file.write(b'{"op_code": 6, "worker')
    mend_journal(plan.journal)
    again = plan.open()
    assert end_orphans(again) == 1
    states = [t.state for t in again.trials[3:]]
    assert states == [States.FAIL, States.RUNNING]
    plan.journal.write_text("this is no journal\nat all\n")
    with pytest.raises(UserError, match="is damaged"):
        plan.open()


def test_a_database_holds_studies_by_name(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, storage=f"sqlite:///{tmp_path}/studies.db", trials=1)
    searched(plan)
    assert len(plan.open().trials) == 1
    with pytest.raises(UserError, match="holds a study named synthetic already"):
        plan.create(ASKED)
    with pytest.raises(UserError, match="holds no study named other"):
        replace(plan, name="other").open()
    with pytest.raises(UserError, match="--storage nonsense: cannot be opened"):
        replace(plan, storage="nonsense").open()


# -- a whole run -----------------------------------------------------------------------------------

WORKLOAD = "duration_s = 1.0\nrate_rps = 14.0\nmax_tokens = 16\n"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> TuneConfig:
    path = tmp_path_factory.mktemp("workload") / "tiny.toml"
    path.write_text(WORKLOAD, encoding="utf-8")
    return TuneConfig(
        policy="adaptivespec-tree",
        trials=6,
        seeds=4,
        seconds=1.0,
        held_out_seeds=4,
        serving=Serving(workload=str(path)),
    )


def tune(config: TuneConfig, stop: SharedStop | None = None) -> tuple[StudyFolder, str]:
    """A run without its plots, which have a test of their own."""
    printed = io.StringIO()
    console = Console(file=printed, width=200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.tuning.plots.draw", lambda *_: ([], ["none in tests"]))
        folder = session.tune(config, lambda _: replay_server(), console, stop)
    return folder, printed.getvalue()


@pytest.fixture(scope="module")
def done(settings: TuneConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyFolder, str]:
    return tune(replace(settings, out=tmp_path_factory.mktemp("runs") / "study"))


def results(folder: StudyFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder.path / "results.json").read_text())
    return found


def test_a_study_says_what_it_found_and_what_to_type_next(done: tuple[StudyFolder, str]) -> None:
    folder, printed = done
    assert f"python evaluate.py --config {folder.best}" in printed
    assert f"python tune.py --resume {folder.path} --trials 12" in printed
    assert "held out" in printed or "nothing beat the defaults" in printed
    found = results(folder)
    assert len(found["trials"]) == 6
    assert found["trials"][0]["controller"] == "adaptivespec-tree"
    assert found["trials"][0]["gain"] == [0.0]
    assert found["versions"]["packages"]["optuna"]
    gains = [t["gain"][0] for t in found["trials"] if t["state"] == "complete"]
    assert found["best"]["gain"][0] == max(gains)


def test_the_winners_file_is_what_evaluate_takes(done: tuple[StudyFolder, str]) -> None:
    folder, _ = done
    argv = ["--config", str(folder.best)]
    config = parse_with_files(EvaluateConfig, argv, "evaluate.py", lambda c: [c.config or Path()])
    config.check()
    assert config.policy[0] == results(folder)["best"]["controller"]
    assert config.seeds == 4


def test_a_study_goes_on_where_it_stopped(
    settings: TuneConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = SharedStop()
    ask = optuna.Study.ask

    def third(study: optuna.Study, *given: Any) -> optuna.Trial:
        trial = ask(study, *given)
        if trial.number == 2:
            stop.requested = True
        return trial

    monkeypatch.setattr(optuna.Study, "ask", third)
    folder, printed = tune(replace(settings, out=tmp_path / "study"), stop)
    assert f"python tune.py --resume {folder.path}" in printed
    assert not folder.best.is_file()
    monkeypatch.undo()
    argv = ["--resume", str(folder.path), "--trials", "5"]
    config = parse_with_files(TuneConfig, argv, "tune.py", settings_files)
    again, printed = tune(config)
    assert again.path == folder.path and folder.best.is_file()
    states = [t["state"] for t in results(folder)["trials"]]
    assert len(states) == 5 and set(states) <= {"complete", "pruned"}
    with pytest.raises(UserError, match="seeds was 4 and is 5"):
        tune(replace(config, seeds=5))
    changed = {**AdaptiveSpecTree.TUNABLE, "weight": Tunable(0.2, 1.0)}
    monkeypatch.setattr(AdaptiveSpecTree, "TUNABLE", changed, raising=False)
    with pytest.raises(UserError, match=r"weight was 0 to 1 and is 0\.2 to 1"):
        tune(config)


def test_two_objectives_have_a_front_and_a_choice(settings: TuneConfig, tmp_path: Path) -> None:
    config = replace(settings, objectives=("goodput", "energy"), out=tmp_path / "study")
    folder, _ = tune(config)
    found = results(folder)
    front = [row["trial"] for row in found["front"]]
    assert found["best"]["trial"] in front
    goodput, energy = found["best"]["gain"]
    assert goodput >= 0.0 and energy <= 0.0


def test_a_learning_algorithms_trials_are_trained(settings: TuneConfig, tmp_path: Path) -> None:
    config = replace(
        settings, policy="ppo", trials=2, seeds=2, held_out_seeds=2, minutes=0.01,
        out=tmp_path / "study",
    )  # fmt: skip
    folder, printed = tune(config)
    found = results(folder)
    assert found["trials"][0]["gain"] == [0.0] and not found["failed"], found["failed"]
    assert found["trials"][1]["controller"].startswith("ppo --set learning_rate=")
    assert f"python train.py --config {folder.path / 'train.toml'}" in printed
    argv = ["--config", str(folder.path / "train.toml")]
    parsed = parse_with_files(TrainConfig, argv, "train.py", lambda c: [c.config or Path()])
    assert parsed.learning.set and parsed.evaluation == Evaluation()


def test_missing_packages_cost_their_plots_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = searched(plan_of(tmp_path, trials=3))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    files, left_out = plots.draw(study, [FIGURES["score"]], tmp_path / "plots")
    assert files == []
    assert left_out == [
        "importances: needs 4 completed trials that differ",
        "all HTML: needs plotly (pip install plotly)",
        "all PNG: needs matplotlib (pip install matplotlib)",
    ]


def test_plots_are_pages_and_pictures(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    pytest.importorskip("matplotlib")
    study = searched(plan_of(tmp_path, trials=6))
    files, left_out = plots.draw(study, [FIGURES["score"]], tmp_path / "plots")
    assert not left_out
    stems = ("history", "slices", "importances")
    assert set(files) == {f"{stem}.{end}" for stem in stems for end in ("html", "png")}
    for name in files:
        content = (tmp_path / "plots" / name).read_bytes()
        assert content.startswith(b"\x89PNG") if name.endswith("png") else b"plotly" in content


class Told:
    """Stands for a module of Optuna's visualisation, and gives back what it is told."""

    @staticmethod
    def plot_param_importances(study: optuna.Study, **options: Any) -> dict[str, Any]:
        return options


def test_two_objectives_are_drawn_each_and_as_a_front(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    plan = plan_of(tmp_path, trials=6, sampler="nsga-ii", directions=("maximize", "minimize"))
    study = searched(plan, two_judge)
    found, _ = plots.drawings(study, [FIGURES["goodput"], FIGURES["energy"]])
    each = {"history-goodput", "history-energy", "slices-goodput", "slices-energy"}
    importances = {"importances-goodput", "importances-energy"}
    assert set(found) == {*each, *importances, "pareto"}
    # The evaluator takes low for good, so what is maximised is turned round.
    goodput, energy = (found[f"importances-{f}"](Told, study) for f in ("goodput", "energy"))
    trial = study.trials[0]
    assert goodput["target"](trial) == -trial.values[0]
    assert energy["target"](trial) == trial.values[1]
    from optuna import visualization

    axes = found["pareto"](visualization, study).layout
    assert axes.xaxis.title.text == "gain in goodput, tokens/s"
    assert axes.yaxis.title.text == "gain in energy, J/token"
