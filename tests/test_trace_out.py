"""`evaluate.py --trace-out`: every run leaves its trace, metrics and logs, and no text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from engine.errors import UserError
from engine.tiny import tiny_server
from engine.workload import PromptSet
from eval.compare import observed
from eval.contenders import named
from train import evaluation
from train.config import Serving
from train.interrupt import StopRequest


@pytest.fixture
def tiny_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of random ids, since the tiny server has no tokenizer."""
    from engine.request import Request

    def draw(*_: object, **__: object) -> object:
        return lambda rng: [
            Request(i, i % 3, rng.integers(0, 64, 5).tolist(), 6, 0.001 * i) for i in range(4)
        ]

    monkeypatch.setattr(evaluation, "drawing", draw)
    monkeypatch.setattr(PromptSet, "load", lambda *_: None)


def test_every_run_leaves_its_files(tmp_path: Path, tiny_prompts: None) -> None:
    with StopRequest() as stop:
        evaluation.compare(
            tiny_server(),
            Serving("live", workload="steady"),
            named(["autoregressive", "chain(2)"]),
            "autoregressive",
            2,
            5.0,
            np.random.default_rng(0),
            Console(quiet=True),
            stop,
            trace_out=tmp_path,
        )
    runs = sorted(p.name for p in tmp_path.iterdir())
    assert len(runs) == 4 and {name.split("-seed")[0] for name in runs} == {
        "autoregressive",
        "chain-2",
    }
    for run in tmp_path.iterdir():
        names = {p.name for p in run.iterdir()}
        assert names == {"trace.json", "metrics.prom", "trees.jsonl", "acceptance.jsonl"}
        events = json.loads((run / "trace.json").read_text())["traceEvents"]
        assert {"verify", "controller"} <= {event["name"] for event in events}
        assert "vllm:time_to_first_token_seconds" in (run / "metrics.prom").read_text()
        assert '"token' not in (run / "trees.jsonl").read_text().replace('"tokens_', "")


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--trace-out .*file: the folder cannot be made"):
        observed(tmp_path / "file", "tiny", "chain(2)", 0)
