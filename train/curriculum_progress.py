"""The callback that tells a curriculum how far training is: it repeats where that does."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from train.curriculum import Curriculum


class CurriculumProgress(BaseCallback):
    """Tells it between rollouts."""

    def __init__(self, curriculum: Curriculum) -> None:
        super().__init__()
        self._curriculum = curriculum

    def _on_rollout_start(self) -> None:
        learner: Any = self.model
        self._curriculum.share = learner.share_done
        self.logger.record("train/curriculum_stage", self._curriculum.stage)

    def _on_step(self) -> bool:
        return True
