"""Learning curves: what held-out episodes scored while a run trained, over trainings.

The score is that of `train.held_out`, SLO-valid tokens less 8 for each violation, a second. The
best fixed tree's level is its score on the very same episodes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.statistics import mean_interval

HELD_OUT_EVERY = 8_192
"""Decisions between two points of a curve."""
SCORE = "eval/score"


def curve_of(runs: Sequence[Path]) -> dict[str, list[Any]]:
    """Mean and 95 % interval over the runs at the decisions at which all were judged."""
    scored = [scores(run / "metrics.jsonl") for run in runs]
    steps = sorted(set.intersection(*(set(of) for of in scored))) if scored else []
    rng = np.random.default_rng(0)
    found = [mean_interval([of[step] for of in scored], rng) for step in steps]
    return {
        "steps": steps,
        "mean": [interval.mean for interval in found],
        "low": [interval.low for interval in found],
        "high": [interval.high for interval in found],
        "each": [[[step, of[step]] for step in sorted(of)] for of in scored],
    }


def scores(metrics: Path) -> dict[int, float]:
    """Held-out scores of one run by its decisions."""
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    return {int(row["step"]): row[SCORE] for row in rows if row.get(SCORE) is not None}


def steps_to(curve: dict[str, list[Any]], level: float) -> int | None:
    """Decisions after which the whole interval lies above `level` for the first time."""
    for step, low in zip(curve["steps"], curve["low"], strict=True):
        if low is not None and low > level:
            return int(step)
    return None


def best_fixed_level(spec: str) -> float:
    """The score of a fixed tree on the held-out episodes by which training is judged."""
    from engine.classes import DEFAULT_CLASSES
    from engine.replay.server import ReplayServer
    from envs.episodes import ReplayEpisodes
    from envs.fleet import ServeFleet
    from eval.compare import ARRIVING, over
    from policies import registry
    from policies.actions import ActionTable
    from policies.best_fixed import BestFixed
    from train.config import Learning, Serving
    from train.evaluation import drawing, load_server, served_workload
    from train.held_out import EPISODES, SECONDS, HeldOut
    from train.watched_fleet import WatchedFleet

    tree = registry.make(spec)
    assert isinstance(tree, BestFixed) and tree.tree is not None
    serving = Serving(workload="shifting")
    server = load_server(serving)
    assert isinstance(server, ReplayServer)
    work = over(served_workload(serving), ARRIVING * SECONDS)
    draw = drawing(server, serving, work, held_out=True)
    depth, width, nodes = tree.tree.depth, tree.tree.width, tree.tree.nodes
    depths = (0, depth) if depth else (0,)
    table = ActionTable(DEFAULT_CLASSES.names, depths, (width,), (nodes,))
    episodes = ReplayEpisodes(server, requests=draw)
    fleet = ServeFleet(episodes, EPISODES, table, decide_every=Learning().decide_every)
    learner: Any = Always(table.nvec - 1)
    return HeldOut(WatchedFleet(fleet), EPISODES).serve(learner).score


class Always:
    """Predicts one action whatever is observed, as a learner would."""

    def __init__(self, action: np.ndarray) -> None:
        self.action = action

    def predict(self, observation: np.ndarray, **_: Any) -> tuple[np.ndarray, None]:
        """That action [R, D] and no memory."""
        return np.tile(self.action, (len(observation), 1)), None
