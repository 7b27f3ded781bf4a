"""Which model of a run is the best: by held-out episodes on replay, on live by its own rollouts.

Both save it the moment it is found. How a policy is judged is `train.held_out`'s, when to give up
`train.plateau`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from policies.features import Observation
from train.algorithms.base import Learner
from train.algorithms.carried import Kept
from train.algorithms.timing import ELAPSED
from train.callbacks import Enough
from train.held_out import HeldOut
from train.interrupt import StopRequest
from train.plateau import Plateau
from train.window import REWARD


class BestHeldOut(Kept):
    """Judges between rollouts, every so many decisions and at the end; ends training on a plateau.

    A run too short to be judged has its last model as its best.
    """

    def __init__(
        self,
        held_out: HeldOut,
        every: int,
        patience: int | None,
        save_best: Callable[[], None],
        stop: StopRequest,
        say: Callable[[str], None],
        note: Callable[[Observation], None],
    ) -> None:
        """`every` in decisions; `say` is told why training ends, where this ends it, and `note` is
        given what the best policy so far observed, [T, F].
        """
        super().__init__()
        self._held_out, self._every, self._plateau = held_out, every, Plateau(patience)
        self._save_best, self._stop, self._say, self._note = save_best, stop, say, note
        self._judged_at = 0

    def state(self) -> dict[str, Any]:
        """Scores so far, and when the last was given."""
        return {"judged_at": self._judged_at, **self._plateau.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; from an empty state, begin anew."""
        self._judged_at = int(state.get("judged_at", 0))
        self._plateau.restore(state)

    def _on_rollout_start(self) -> None:
        if self.num_timesteps // self._every > self._judged_at // self._every:
            self._judge()
        if self._plateau.is_reached:
            self._say(
                f"no held-out evaluation was better than that of decision "
                f"{self._plateau.best_at:,} in {self._plateau.without_gain} in a row (--patience), "
                "so training ends"
            )
            raise Enough

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self._judged_at == 0:
            self._save_best()
        elif self._judged_at < self.num_timesteps and not self._stop.requested:
            self._judge()

    def _judge(self) -> None:
        learner: Any = self.model
        found = self._held_out.serve(learner)
        self._judged_at = self.num_timesteps
        for tag, value in found.tags().items():
            self.logger.record(tag, value)
        self.logger.dump(self.num_timesteps)
        if self._plateau.improves(found.reward, self.num_timesteps):
            self._save_best()
            if self._held_out.seen is not None:
                self._note(self._held_out.seen)


class BestRollout(Kept):
    """Saves the model of the rollout with most reward a second.

    Per second of the engine's clock, since decisions last different times; the reward is the
    environment's, without what `TimedSteps` adds where a trace was cut. Rollouts of fewer than
    `least` decisions, as of an algorithm that learns after every step, are judged several together.
    What an algorithm draws at random before it learns, in its first `random` decisions, is not
    judged. Rates cannot be added up, so where a step earns one (`rates`), valid tokens a busy
    second decide.
    """

    def __init__(
        self,
        save_best: Callable[[], None],
        least: int = 1,
        random: int = 0,
        rates: bool = False,
    ) -> None:
        super().__init__()
        self._save_best, self._least, self._random = save_best, least, random
        self._rates = rates
        self._reward, self._elapsed_s, self._decisions = 0.0, 0.0, 0

    def state(self) -> dict[str, Any]:
        """What is not judged yet; the best so far is the model's own."""
        return {
            "reward": self._reward,
            "elapsed_s": self._elapsed_s,
            "decisions": self._decisions,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; from an empty state, begin anew."""
        self._reward = float(state.get("reward", 0.0))
        self._elapsed_s = float(state.get("elapsed_s", 0.0))
        self._decisions = int(state.get("decisions", 0))

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if self._rates:
                self._reward += info["valid_tokens"]
                self._elapsed_s += info["busy_s"]
            else:
                self._reward += sum(v for key, v in info.items() if key.startswith(REWARD))
                self._elapsed_s += info[ELAPSED]
        self._decisions += len(self.locals["infos"])
        return True

    def _on_rollout_end(self) -> None:
        """The model that acted in this rollout stands until the update that follows."""
        if self._decisions < self._least:
            return
        learner: Any = self.model
        assert isinstance(learner, Learner)
        reward = self._reward / self._elapsed_s if self._elapsed_s > 0 else -math.inf
        # A stretch that began among random decisions ends not long after them.
        begun = self.num_timesteps - self._decisions
        if reward > learner.best_reward and begun >= self._random:
            learner.best_reward = reward
            self._save_best()
        self.restore({})
