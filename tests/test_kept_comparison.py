"""A plain comparison: kept run by run, taken up by the same command, alike in any process."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from engine.errors import UserError
from engine.tiny import tiny_server
from eval import runner
from eval.kept_runs import Kept
from eval.runner import Run
from eval.stored_runs import run_of
from train import comparison, evaluation
from train.comparison import UNFINISHED, evaluate
from train.config import Serving
from train.evaluate_config import EvaluateConfig

POLICY = ("chain(2)", "autoregressive")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EvaluateConfig:
    """Two controllers, two seeds of two seconds, on replay."""
    monkeypatch.setattr(sys, "argv", ["evaluate.py", "--policy", *POLICY])
    return EvaluateConfig(
        POLICY, Serving("replay", workload="steady"), seeds=2, seconds=2.0, out=tmp_path / "out"
    )


def console() -> Console:
    """To be read."""
    return Console(file=io.StringIO(), width=300)


def scores(folder: Path) -> dict[str, Any]:
    """What every run came to."""
    found = json.loads((folder / "results.json").read_text())["controllers"]
    return {name: of["runs"] for name, of in found.items()}


def test_a_run_is_the_same_as_json_and_back(config: EvaluateConfig) -> None:
    evaluate(config, console())
    made = [run for runs in scores(config.out or Path()).values() for run in runs]
    assert len(made) == 4 and made[0]["metrics"]["by_class"]["coding"]["tpot_s"].keys()
    nothing = {**made[0], "joules_per_token": np.inf}
    assert isinstance(run_of(nothing), Run)
    assert asdict(run_of(nothing)) == nothing


def test_what_was_served_before_a_stop_is_not_served_again(
    config: EvaluateConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = evaluate(replace(config, out=tmp_path / "whole"), console())
    served: list[tuple[str, int]] = []
    serve = runner.serve

    def cut(name: str, controller: Any, seed: int, *more: Any) -> Run:
        if len(served) == 3:
            raise ValueError("cut here")
        served.append((name, seed))
        return serve(name, controller, seed, *more)

    monkeypatch.setattr(runner, "serve", cut)
    with pytest.raises(ValueError, match="cut here"):
        evaluate(config, console())
    out = config.out or Path()
    assert len(list((out / UNFINISHED).glob("*.json"))) == 3 + 1  # and what they were made with
    with pytest.raises(UserError, match="made with other seconds; repeat their own command"):
        evaluate(replace(config, seconds=3.0), console())
    with pytest.raises(UserError, match="made with other --max-tokens"):
        evaluate(replace(config, serving=replace(config.serving, max_tokens=9)), console())
    served.clear()
    evaluate(config, console())
    assert len(served) == 1 and not (out / UNFINISHED).exists()
    assert scores(out) == scores(whole)


def test_processes_bring_what_one_does(
    config: EvaluateConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = evaluate(replace(config, out=tmp_path / "whole"), console())

    def here(
        do: Callable[[Any], Any], tasks: Iterable[Any], processes: int, stopped: object
    ) -> Iterator[Any]:
        assert processes == 3
        for task in tasks:
            yield task, do(task)

    monkeypatch.setattr(comparison, "each_made", here)
    shared = evaluate(replace(config, processes=3), console())
    assert scores(shared) == scores(whole)


def test_a_stop_says_how_to_go_on(config: EvaluateConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "each_made", lambda *_: iter(()))  # none comes back
    told = console()
    with pytest.raises(KeyboardInterrupt):
        evaluate(replace(config, processes=2), told)
    said = told.file.getvalue()  # type: ignore[attr-defined]
    command = "python evaluate.py --policy 'chain(2)' autoregressive --out"
    assert f"what is done is kept; {command} {config.out} goes on" in said


def test_live_runs_are_not_served_side_by_side() -> None:
    with pytest.raises(UserError, match=r"--processes 2: live runs .* one after the other"):
        EvaluateConfig(POLICY, Serving("live", workload="steady"), processes=2).check()


def test_a_run_in_which_nobody_came_is_reported_too(config: EvaluateConfig) -> None:
    quiet = replace(config, seconds=0.1, serving=replace(config.serving, load=0.01))
    folder = evaluate(quiet, console())
    assert evaluation.report_line(folder) == f"report      {folder / 'report.html'}"
    assert "no request arrived in any run" in (folder / "report.html").read_text()


def test_a_changed_workload_file_is_another_test(config: EvaluateConfig, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nload = 0.5\n')
    mine = replace(config, serving=replace(config.serving, workload=str(file)))
    server = evaluation.load_server(mine.serving)
    before = comparison.made(mine, server)
    file.write_text('name = "mine"\nload = 0.6\n')
    after = comparison.made(mine, server)
    assert {name for name in before if before[name] != after[name]} == {"workload"}


def test_results_may_not_overwrite_what_they_are_compared_with(config: EvaluateConfig) -> None:
    for earlier in (config.out or Path(), (config.out or Path()) / "results.json"):
        with pytest.raises(UserError, match="is the folder of --against"):
            replace(config, against=earlier).check()


def test_a_live_server_promises_what_it_did_before_the_stop(tmp_path: Path) -> None:
    server, kept = tiny_server(0, 12), Kept(tmp_path / "runs", {})
    server.unloaded_tpot_s = 0.5
    comparison._as_measured(server, kept)
    server.unloaded_tpot_s = 0.7
    comparison._as_measured(server, kept)
    assert server.unloaded_tpot_s == 0.5
    server.close()
