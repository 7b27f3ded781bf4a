"""PPO in the live environment: the session that `train.py` runs, for two minutes."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

from benchmarks.gpu_check.frame import Budget, Findings
from benchmarks.gpu_check.subject import Subject

MINUTES, TINY_MINUTES = 2.0, 0.03
RESERVE_S = 15.0  # of the section's time, for loading and exporting
TINY_WORKLOAD = "duration_s = 2.0\nload = 0.5\nprompt_tokens = 24\ntruncate = true\n"


def learning(subject: Subject, budget: Budget) -> Findings:
    """Decisions and updates; wrong where nothing was learned or a figure is no number."""
    from rich.console import Console

    from train.config import Evaluation, Learning, Serving, TrainConfig
    from train.session import train

    minutes = min(MINUTES, max(budget.left_s - RESERVE_S, 1.0) / 60)
    if subject.tiny:
        minutes = min(TINY_MINUTES, minutes)
    elif minutes < MINUTES:
        budget.cut.append(f"{MINUTES - minutes:.1f} of {MINUTES:g} minutes")
    server = subject.small
    with tempfile.TemporaryDirectory(prefix="draftgym-gpu-check-") as folder:
        serving = Serving(backend="live")
        settings = Learning(minutes=minutes)
        if subject.tiny:
            workload = Path(folder) / "tiny.toml"
            workload.write_text(TINY_WORKLOAD, encoding="utf-8")
            serving = Serving(backend="live", workload=str(workload), max_tokens=8)
            short = ("n_steps=8", "batch_size=8", "n_epochs=1")
            settings = Learning(minutes=minutes, decide_every=2, set=short)
        config = TrainConfig(settings, serving, Evaluation(0), out=Path(folder) / "run")
        run = train(config, lambda _: server, Console(file=io.StringIO()))
        manifest = json.loads((run.controller / "manifest.json").read_text(encoding="utf-8"))
    told = manifest["training"]
    wrong = []
    if not told["updates"]:
        wrong.append(f"no update in {60 * minutes:.0f} s, {told['decisions']} decisions")
    return Findings(
        f"{told['decisions']:,} decisions and {told['updates']:,} updates in {told['seconds']:.0f} "
        f"s on {told['served']}",
        wrong=wrong,
    )
