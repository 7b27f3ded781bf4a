"""Whom all are measured against: the best fixed tree of each stretch, found on training seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.workload import episode_generator
from eval.adaptation_test.serving import SEARCHED, Setting, drawing
from eval.oracle_sweep import alone, best_tree


@dataclass(frozen=True)
class Sweep:
    """Of one disturbance."""

    setting: Setting
    disturbance: str


def searched(sweep: Sweep) -> list[dict[str, Any]]:
    """By stretch the tree and the SLO-valid tokens a second that it reached in the sweep."""
    of = sweep.setting.disturbed(sweep.disturbance)
    draw = drawing(sweep.setting, sweep.disturbance, False)
    episodes = [draw(episode_generator(seed)) for seed in range(SEARCHED)]
    found = []
    for stretch in of.stretches:
        part = [alone(requests, stretch.start_s, stretch.end_s) for requests in episodes]
        best = best_tree(sweep.setting.world.server, part, stretch.end_s)
        found.append({"tree": best.tree.spec, "valid_tps": best.valid_tps})
    return found
