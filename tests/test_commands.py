"""The commands as typed: quick help, no heavy import, one line and exit code 2 for bad input."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import UserError
from engine.workload import PRESETS
from eval.contenders import named, subject_of
from policies import registry
from train import command_line
from train.config import Serving, TrainConfig
from train.evaluate_config import EvaluateConfig
from train.evaluation import load_server, seconds_a_run, served_workload

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ("train", "evaluate", "export", "record", "tune")
HEAVY = ("torch", "stable_baselines3", "numba", "gymnasium", "transformers", "scipy", "optuna")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the repository root."""
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_grouped_and_imports_nothing_heavy(command: str) -> None:
    probe = (
        f"import runpy, sys; sys.argv = ['{command}.py', '--help']\n"
        f"try: runpy.run_path('{command}.py', run_name='__main__')\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "print('LOADED', *sorted(sys.modules))"
    )
    done = run("-c", probe)
    assert done.returncode == 0, done.stderr
    text, _, loaded = done.stdout.partition("LOADED")
    assert "options" in text
    assert not set(HEAVY) & set(loaded.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("train.py", "--policy", "pppo"),
            "--policy pppo: no learning algorithm of that name; did",
        ),
        (("train.py", "--load", "-1"), "--load -1.0: expected a number above 0"),
        (("train.py", "--minutes", "0"), "--minutes 0.0: expected a number above 0"),
        (("train.py", "--minuts", "1"), "did you mean --minutes?"),
        (("train.py", "--seed", "x"), "Error parsing --seed"),
        (("train.py", "--workload", "shiftin"), "'shifting'"),
        (("train.py", "--baselines", "chian"), "no controller of that name; did you mean chain?"),
        (("train.py", "--backend", "live", "--prompts", "/nowhere"), "no prompts at /nowhere"),
        (
            ("train.py", "--prompts", "/nowhere"),
            "--prompts /nowhere: has no meaning with --backend",
        ),
        (("train.py", "--resume", "/nowhere"), "/nowhere: no run folder"),
        (
            ("train.py", "--set", "n_steps=50"),
            "a rollout of 32 engines has 1600 decisions; expected at least 2, and a batch that",
        ),
        (
            ("train.py", "--policy", "dqn", "--set", "exploration_faction=0.1"),
            "dqn has no setting of that name; did you mean exploration_fraction?",
        ),
        (("train.py", "--decisions", "0"), "--decisions 0: expected a number of at least 1"),
        (("evaluate.py", "--policy", "adaserv"), "--policy adaserv: no controller of that name"),
        (("evaluate.py", "--policy", "chain", "chain"), "name each controller once"),
        (("evaluate.py",), "--policy: expected at least one controller"),
        (("evaluate.py", "--policy", "chain", "--seeds", "0"), "--seeds 0: expected"),
        (("export.py", "/nowhere"), "/nowhere: no run folder"),
        (("export.py",), "export.py --help"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process, which has imported what the commands need; a process of its own is below."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", list(words))
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(words[0], run_name="__main__")
    said = capsys.readouterr()
    assert stop.value.code == 2, said
    assert says in said.err
    assert len(said.err.splitlines()) == 1, said.err


@pytest.mark.parametrize(
    "words",
    [
        ("train.py", "--backend", "live", "--prompts", "/nowhere"),
        ("evaluate.py", "--policy", "chain", "chain"),
        ("export.py", "/nowhere"),
    ],
)
def test_the_shell_sees_exit_code_2_and_one_line_too(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "Traceback" not in done.stderr


def test_list_shows_the_controllers() -> None:
    done = run("evaluate.py", "--list")
    assert done.returncode == 0
    assert {line.split()[0] for line in done.stdout.splitlines()} >= {"autoregressive", "eagle3"}


def files(config: TrainConfig) -> list[Path]:
    return [config.config] if config.config else []


def parsed(*argv: str) -> TrainConfig:
    return command_line.parse_with_files(TrainConfig, argv, "train.py", files)


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('minutes = 2\nload = 0.7\nbaselines = ["chain(2)"]\n')
    config = parsed("--config", str(path), "--minutes", "3")
    assert (config.learning.minutes, config.serving.load) == (3.0, 0.7)
    assert config.evaluation.baselines == ("chain(2)",)
    assert config.learning.decide_every == 4  # the default


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("decide_evry = 3", "no setting is called 'decide_evry'; did you mean 'decide_every'?"),
        ("minutes = 'x'", "--minutes"),
        ("minutes = ", "not valid TOML"),
        ("[learning]\nminutes = 1", "'learning'"),
        ("minutes = {a = 1}", "minutes is a table"),
    ],
)
def test_a_bad_file_is_one_sentence_that_names_it(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        parsed("--config", str(path))
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        parsed("--config", str(tmp_path / "none.toml"))


def test_load_replaces_a_steady_load_and_multiplies_a_shifting_one() -> None:
    steady = served_workload(EvaluateConfig().serving)
    assert steady.load == 0.8
    config = command_line.parse(TrainConfig, ["--workload", "steady", "--load", "0.5"], "train.py")
    assert served_workload(config.serving).load == 0.5
    config = command_line.parse(TrainConfig, ["--load", "0.5"], "train.py")
    shifts = served_workload(config.serving).shifts
    assert shifts is not None and shifts.load == (0.25, 0.6)


def test_controllers_get_the_tables_names() -> None:
    assert list(named(["chain(2)", "autoregressive"])) == ["chain(2)", "autoregressive"]
    assert subject_of(["chain", "eagle3"], ["a", "b"]) == "a"


def test_a_wrapped_run_is_a_learned_controller(tmp_path: Path) -> None:
    exported = tmp_path / "run" / "controller"
    exported.mkdir(parents=True)
    (exported / "manifest.json").write_text("{}")
    for spec in (f"{tmp_path}/run", f"tiered:{tmp_path}/run", f"tiered:{exported}"):
        assert registry.exported_folder(spec) == exported
        assert subject_of(["chain", spec], ["a", "b"]) == "b"
    for spec in ("tiered:", "tiered:chain", f"tiered:{tmp_path}/none", "chain"):
        assert registry.exported_folder(spec) is None


def test_a_files_lengths_hold_unless_the_flag_is_typed(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_text("load = 0.5\nmax_tokens = 300\n")
    config = command_line.parse(TrainConfig, ["--workload", str(path)], "train.py")
    assert served_workload(config.serving).max_tokens == 300
    typed = ["--workload", str(path), "--max-tokens", "40"]
    config = command_line.parse(TrainConfig, typed, "train.py")
    assert served_workload(config.serving).max_tokens == 40
    for preset in PRESETS:
        assert served_workload(Serving(workload=preset)).max_tokens == 96


def test_a_recording_alone_asks_for_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The live defaults are live's: on replay whatever was recorded is taken."""
    from engine.replay.server import ReplayConfig, ReplayServer
    from engine.serving import LiveConfig, LiveServer

    asked: list[ReplayConfig | LiveConfig] = []

    def load(config: ReplayConfig | LiveConfig) -> None:
        asked.append(config)
        raise UserError("enough")

    monkeypatch.setattr(ReplayServer, "load", load)
    monkeypatch.setattr(LiveServer, "load", load)
    argv = ["--backend", "replay", "--recording", "other"]
    replay = command_line.parse(TrainConfig, argv, "train.py").serving
    for serving in (replay, Serving(backend="live")):
        with pytest.raises(UserError, match="enough"):
            load_server(serving)
    recorded, live = asked
    assert (recorded.model, recorded.drafter) == (None, None)
    assert (live.model, live.drafter) == ("smollm2-135m-instruct", "eagle3")


def test_time_is_shared_among_runs() -> None:
    assert seconds_a_run(180.0, 4, 5) == 9.0
    assert seconds_a_run(0.001, 4, 5) == 0.1


def test_a_command_that_breaks_asks_for_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def broken() -> None:
        raise ZeroDivisionError("in a test")

    with pytest.raises(SystemExit) as stop:
        command_line.run_command(broken)
    assert stop.value.code == 1
    assert "please send runs/crash.txt" in capsys.readouterr().err
    assert "ZeroDivisionError" in (tmp_path / "runs" / "crash.txt").read_text()


def test_a_full_disk_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device", "results.json")

    with pytest.raises(SystemExit) as stop:
        command_line.run_command(full)
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("the disk is full while writing results.json")


def test_ctrl_c_outside_training_is_130() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as stop:
        command_line.run_command(interrupted)
    assert stop.value.code == 130
