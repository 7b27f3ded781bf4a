"""What callbacks remember between two rollouts: kept on the model, saved and loaded with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

ATTRIBUTE = "carried"


class Kept(BaseCallback):
    """Remembers something from one rollout to the next; `keep` has it saved with the model."""

    def state(self) -> dict[str, Any]:
        """All that is remembered: plain numbers and texts, nested."""
        raise NotImplementedError

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; from an empty state, begin anew."""
        raise NotImplementedError

    def keep(self) -> None:
        """Put the state where it is saved with the model."""
        kept = {**getattr(self.model, ATTRIBUTE, {}), type(self).__name__: self.state()}
        setattr(self.model, ATTRIBUTE, kept)

    def _init_callback(self) -> None:
        self.restore(getattr(self.model, ATTRIBUTE, {}).get(type(self).__name__, {}))
