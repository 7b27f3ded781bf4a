"""The learning algorithms by name: what each acts on, and where its class lives.

Nothing is imported before an algorithm is made, so that `--help` and errors cost nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from policies.action_codec import ActionCodec
    from policies.actions import ActionTable
    from train.algorithms.base import Learner


@dataclass(frozen=True)
class Algorithm:
    """One algorithm: `make` is a class of ours that knows time, over `theirs`, the library's."""

    name: str
    acts_on: Literal["tiers", "masked tiers", "presets", "box"]
    module: str
    attribute: str
    library: str
    """Module of Stable-Baselines3 or sb3-contrib, and the class there."""
    policy_alias: str = "MlpPolicy"

    @property
    def make(self) -> type[Learner]:
        """The class. Imports torch."""
        found: type[Learner] = getattr(importlib.import_module(self.module), self.attribute)
        return found

    @property
    def theirs(self) -> Any:
        """The library's class. Imports torch."""
        module, _, attribute = self.library.partition(":")
        return getattr(importlib.import_module(module), attribute)

    @property
    def is_off_policy(self) -> bool:
        """Whether it learns from a replay buffer."""
        return self.module == _OFF_POLICY

    def codec(self, table: ActionTable, groups: Sequence[Sequence[str]]) -> ActionCodec:
        """From its actions to tiers of `table`; presets are of these groups of classes."""
        from policies.action_codec import BoxCodec, TierCodec, presets_of

        if self.acts_on == "presets":
            return presets_of(table, groups)
        if self.acts_on == "box":
            return BoxCodec(table)
        return TierCodec(table, masked=self.acts_on == "masked tiers")


_ON_POLICY, _OFF_POLICY = "train.algorithms.on_policy", "train.algorithms.off_policy"
_MASKABLE, _RECURRENT = "train.algorithms.maskable", "train.algorithms.recurrent"
ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("ppo", "tiers", _ON_POLICY, "TimedPPO", "stable_baselines3:PPO"),
        Algorithm("a2c", "tiers", _ON_POLICY, "TimedA2C", "stable_baselines3:A2C"),
        Algorithm(
            "recurrent-ppo", "tiers", _RECURRENT, "TimedRecurrentPPO",
            "sb3_contrib:RecurrentPPO", "MlpLstmPolicy",
        ),
        Algorithm(
            "maskable-ppo", "masked tiers", _MASKABLE, "TimedMaskablePPO", "sb3_contrib:MaskablePPO"
        ),
        Algorithm("dqn", "presets", _OFF_POLICY, "TimedDQN", "stable_baselines3:DQN"),
        Algorithm("qrdqn", "presets", _OFF_POLICY, "TimedQRDQN", "sb3_contrib:QRDQN"),
        Algorithm("sac", "box", _OFF_POLICY, "TimedSAC", "stable_baselines3:SAC"),
        Algorithm("tqc", "box", _OFF_POLICY, "TimedTQC", "sb3_contrib:TQC"),
    )
}  # fmt: skip
"""In the order that they are shown."""
