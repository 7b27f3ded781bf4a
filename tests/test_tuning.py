"""What tuning searches and refuses: declared ranges, calls, settings; and how it says so."""

from __future__ import annotations

import inspect
import runpy
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from engine.errors import UserError
from engine.workload import FIRST_HELD_OUT_SEED
from eval.statistics import interquartile_mean
from policies import registry
from policies.tunable import Tunable, declared
from tests.synthetic_tuning import SPACE
from train.algorithms.arguments import arguments_of
from train.command_line import as_toml, parse_with_files
from train.config import Learning, Serving, TrainConfig
from train.tuning import bench, figures, learned
from train.tuning.analytic import AnalyticSubject, tunable_names
from train.tuning.held_out import compare, gain_of, told
from train.tuning.search_space import changes, distributions, in_words, rounded
from train.tuning.study import check_sampler
from train.tuning.study_folder import StudyFolder, settings_files
from train.tuning.tune_config import LEARNED, MOST_SEEDS, TuneConfig

ROOT = Path(__file__).resolve().parents[1]
WANTED = {
    "adaptivespec", "adaptivespec-tree", "adaptivespec-margin", "adaserve", "turbospec", "dsde",
    "sglang-ema", "slack-priced",
}  # fmt: skip


def subject(spec: str, lossy: bool = False) -> AnalyticSubject:
    return AnalyticSubject.of(spec, lossy)


def test_the_controllers_that_were_asked_for_declare_ranges() -> None:
    assert set(tunable_names()) >= WANTED


@pytest.mark.parametrize("name", sorted(WANTED))
def test_defaults_lie_in_the_ranges_and_both_corners_can_be_made(name: str) -> None:
    found = subject(name, lossy=True)
    for key, tunable in found.space.items():
        assert tunable.low <= found.defaults[key] <= tunable.high, key
        if tunable.whole:
            assert type(found.defaults[key]) is int, key
    assert found.spelled(found.defaults) == name
    for end in ("low", "high"):
        values = {k: getattr(r, end) for k, r in found.space.items()}
        call = found.spelled({k: int(v) if found.space[k].whole else v for k, v in values.items()})
        made = registry.make(call).name
        assert made == (call if name != "sglang-ema" else call.replace("steps=", ""))
    assert distributions(found.space).keys() == found.space.keys()


def test_declared_names_are_parameters_of_the_constructor() -> None:
    for name in tunable_names():
        kind = registry.class_of(registry.ENTRIES[name])
        assert set(declared(kind)) <= set(inspect.signature(kind).parameters)
    tree = registry.class_of(registry.ENTRIES["adaptivespec-tree"])
    assert "margin" not in declared(tree)  # inherited, and not taken


def test_a_margin_is_searched_only_where_the_text_counts() -> None:
    assert "margin" not in subject("adaptivespec").space
    assert "margin" in subject("adaptivespec", lossy=True).space


def test_what_a_call_states_stays_and_wrappers_stand_before_it() -> None:
    found = subject("held(4):adaptivespec(weight=0.25, depth=(0, 6))")
    assert not {"weight", "depth[0]", "depth[1]"} & set(found.space)
    call = found.spelled({**found.defaults, "memory": 0.123456, "nodes[1]": 48})
    assert call == "held(4):adaptivespec(weight=0.25, memory=0.123, depth=(0, 6), nodes=(1, 48))"
    (controller,) = found.controllers({**found.defaults, "memory": 0.123456}, 0)
    assert controller.name == "held(4):adaptivespec(weight=0.25, memory=0.123, depth=(0, 6))"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("chain", "declares no range for any of its parameters; those that do are adaptivespec"),
        ("adaptivspec", "no controller of that name; did you mean adaptivespec?"),
        ("sglang-ema(5)", "nothing is left to search; leave out one of steps"),
        ("adaptivespec-margin(static=(2, 2, 4))", "for a margin add accuracy to --objectives"),
    ],
)
def test_what_cannot_be_tuned_is_refused(spec: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        subject(spec)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"policy": ""}, "--policy: expected a controller to tune"),
        ({"trials": 1}, "--trials 1: expected a number of at least 2"),
        ({"objectives": ("goodputt",)}, "no figure of that name; did you mean goodput?"),
        ({"objectives": ("score", "score")}, "expected one figure, or two different ones"),
        ({"objectives": ("score", "energy"), "sampler": "cma-es"}, "searches for one objective"),
        ({"objectives": ("score", "energy"), "pruner": "median"}, "nothing is pruned with two"),
        ({"serving": Serving(backend="live"), "processes": 2}, "would slow one another down"),
        ({"minutes": 2.0}, "adaserve is not trained; leave it out"),
        ({"policy": "dqn"}, "no ranges are known for this learning algorithm; expected ppo"),
        ({"policy": "ppo", "pruner": "wilcoxon"}, "pairs analytic controllers run by run"),
        ({"policy": "ppo", "serving": Serving(backend="live")}, "train on replay"),
        ({"seeds": MOST_SEEDS + 1}, "are held out for the test"),
        ({"out": Path("a"), "resume": Path("b")}, "give one of the two"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as caught:
        replace(TuneConfig(policy="adaserve"), **given).check()  # type: ignore[arg-type]
    assert says in str(caught.value)


def test_usual_settings_are_settled_by_what_is_tuned() -> None:
    usual = TuneConfig(policy="adaserve")
    usual.check()
    assert (usual.sampled_by, usual.pruned_by) == ("tpe", "wilcoxon")
    two = replace(usual, objectives=("goodput", "energy"))
    assert (two.sampled_by, two.pruned_by) == ("nsga-ii", "none")
    assert replace(usual, policy="ppo").pruned_by == "median"


def test_settings_are_read_back_from_their_file(tmp_path: Path) -> None:
    config = TuneConfig(policy="adaserve(budget=2.0)", traces=("steady", "shifting"), seeds=3)
    folder = StudyFolder.create(replace(config, out=tmp_path / "study"), datetime.now())
    folder.write_asked(config)
    argv = ["--resume", str(folder.path), "--trials", "7"]
    again = parse_with_files(TuneConfig, argv, "tune.py", settings_files)
    assert again == replace(config, trials=7, resume=folder.path)
    assert "traces = " in as_toml(config)
    with pytest.raises(UserError, match="there is something already"):
        StudyFolder.create(replace(config, out=folder.path), datetime.now())
    with pytest.raises(UserError, match="no study folder"):
        StudyFolder.open(tmp_path)


def test_cma_es_needs_its_package_and_two_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install cmaes"):
        check_sampler("cma-es", 5)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: "there")
    with pytest.raises(UserError, match="here is only one"):
        check_sampler("cma-es", 1)
    check_sampler("cma-es", 2)


def test_spaces_that_differ_say_in_what() -> None:
    before = in_words(SPACE)
    assert before == {"x": "-2 to 2", "k": "0 to 20 (whole)"}
    now = in_words({"x": Tunable(-1.0, 2.0), "y": Tunable(0.1, 1.0, log=True)})
    assert changes(before, now) == ["x was -2 to 2 and is -1 to 2", "k is gone", "y is new"]
    assert not changes(before, before)


def test_a_bad_policy_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["tune.py", "--policy", "chain"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path("tune.py", run_name="__main__")
    assert stop.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith("--policy chain: declares no range")


def test_what_is_shown_is_what_is_served() -> None:
    assert rounded({"a": 0.123456, "b": 17, "c": 12345.6}) == {"a": 0.123, "b": 17, "c": 12300.0}


def test_held_out_seeds_are_nobodys_trial_seeds() -> None:
    trials = bench.trial_instances(("steady", "shifting"), MOST_SEEDS)
    last = bench.held_out_instances(("steady",), 20)
    assert MOST_SEEDS <= FIRST_HELD_OUT_SEED
    assert not {i.seed for i in trials} & {i.seed for i in last}
    assert len(trials) == len(set(trials)) == 2 * MOST_SEEDS


def test_a_gain_is_the_interquartile_mean_of_paired_differences() -> None:
    rng = np.random.default_rng(1)
    theirs = rng.normal(100.0, 30.0, 12)
    ours = theirs + rng.normal(2.0, 1.0, 12)
    found = figures.gain(ours.tolist(), theirs.tolist())
    middle = np.sort(ours - theirs)[3:-3]
    assert found == pytest.approx(middle.mean())
    # Unpaired it would be another number, which a wild pair moves much further.
    assert found != pytest.approx(float(interquartile_mean(ours) - interquartile_mean(theirs)))
    assert figures.gain([1.0, np.nan, 3.0], [0.0, 1.0, 2.0]) == 1.0
    assert np.isnan(figures.gain([np.nan], [1.0]))


@pytest.mark.parametrize(
    ("shift", "says"), [(3.0, "new beats old on score"), (0.0, "no difference")]
)
def test_the_test_says_only_what_the_interval_shows(shift: float, says: str) -> None:
    rng = np.random.default_rng(7)
    theirs = rng.normal(100.0, 30.0, 20)
    ours = theirs + shift + rng.normal(0.0, 1.0, 20)
    rows = [[{"score": value} for value in values.tolist()] for values in (ours, theirs)]
    where = bench.held_out_instances(("a",), 20)
    figure = figures.FIGURES["score"]
    found = gain_of(figure, ("new", "old"), rows[0], rows[1], where, np.random.default_rng(0))
    assert says in found.says
    assert found.gain.excludes_zero == (shift > 0)
    assert "over 20 held-out runs" in told(found, figure)


def test_two_trainings_of_one_algorithm_are_told_apart() -> None:
    ours, theirs = registry.make("chain(2)"), registry.make("chain(2)")

    class Better:
        def serve(self, controller: object, instance: bench.Instance) -> dict[str, float]:
            return {"score": float(instance.seed) if controller is ours else 0.0}

    where, rng = bench.held_out_instances(("a",), 6), np.random.default_rng(0)
    score = [figures.FIGURES["score"]]
    (found,) = compare(Better(), ours, theirs, where, score, rng, lambda done: None)  # type: ignore[arg-type]
    name = ours.name
    assert found.says == f"the winner's {name} beats the defaults' {name} on score"


def test_hyper_parameters_are_spelled_in_the_trainers_names() -> None:
    for policy in LEARNED:
        for key, value in learned.usual(policy).items():
            assert learned.SPACE[key].low <= value <= learned.SPACE[key].high, (policy, key)
        spelled = learned.settings(policy, learned.usual(policy))
        same = arguments_of(TrainConfig(learning=Learning(policy=policy, set=spelled)))
        assert same == arguments_of(TrainConfig(learning=Learning(policy=policy)))
    given = {"learning_rate": 0.00123456, "log2_n_steps": 6, "log2_batches": 2, "n_epochs": 4}
    assert learned.settings("ppo", given) == (
        "learning_rate=0.00123", "n_epochs=4", "n_steps=64", "batch_size=512",
    )  # fmt: skip
