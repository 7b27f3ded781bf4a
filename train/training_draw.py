"""What training serves: the workload, randomised or led up to where the options say so.

A comparison and held-out episodes are drawn elsewhere, from the workload as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.replay.fleet.filling import memory_refusal
from engine.replay.server import ReplayServer
from engine.workload import WorkloadConfig
from train.config import TrainConfig
from train.curriculum import Curriculum
from train.evaluation import drawing
from train.randomised import randomised
from train.task import task_of

if TYPE_CHECKING:
    from engine.drawing import Draw
    from engine.request import Request
    from engine.server import Server

SEEDS = 2**63


class Apart:
    """Draws every episode from a generator of its own, seeded by one number of the given one.

    However much an episode draws, those that follow it stay the same: so engines that share their
    episodes go on sharing them when one is ahead.
    """

    def __init__(self, draw: Draw) -> None:
        self.draw = draw

    def __call__(self, generator: np.random.Generator) -> list[Request]:
        """One episode's requests."""
        return self.draw(np.random.default_rng(int(generator.integers(SEEDS))))


def training_draw(
    server: Server, work: WorkloadConfig, config: TrainConfig
) -> tuple[Draw, Curriculum | None]:
    """Who draws training's episodes, and the curriculum that wants to know how far training is.

    Raises UserError for a curriculum on a workload that does not shift.
    """
    episodes, serving = config.episodes, config.serving

    classes = task_of(config.learning.kind, config.preset).classes

    def plain(stage: WorkloadConfig) -> Draw:
        return drawing(server, serving, stage, classes=classes)

    if episodes.randomise:
        memory = not (isinstance(server, ReplayServer) and memory_refusal(server))
        work = randomised(work, serving.backend, memory)
    curriculum = Curriculum(work, plain) if episodes.curriculum else None
    draw: Draw = curriculum or plain(work)
    return (Apart(draw) if episodes.shared_arrivals > 1 else draw), curriculum
