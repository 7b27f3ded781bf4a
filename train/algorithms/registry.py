"""The learning algorithms by name: what each acts on, and where its class lives.

Nothing is imported before an algorithm is made, so that `--help` and errors cost nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from engine.errors import UserError

if TYPE_CHECKING:
    from policies.action_codec import ActionCodec
    from policies.actions import Actions
    from train.algorithms.base import Learner


Kind = Literal["tiers", "sized-tiers", "prices"]
"""Of tables of actions."""


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
    def sets_prices(self) -> bool:
        """Whether it chooses each number by itself; presets and masks are of whole plans."""
        return self.acts_on in ("tiers", "box")

    @property
    def nets(self) -> tuple[str, ...]:
        """Networks that may have widths of their own, by Stable-Baselines3's names."""
        if self.acts_on == "presets":
            return ()
        return ("pi", "qf") if self.acts_on == "box" else ("pi", "vf")

    @property
    def is_off_policy(self) -> bool:
        """Whether it learns from a replay buffer."""
        return self.module == _OFF_POLICY

    def check_actions(self, kind: str) -> None:
        """Raise UserError where it cannot choose from a table of that kind."""
        if kind == "prices" and not self.sets_prices:
            able = ", ".join(name for name, of in ALGORITHMS.items() if of.sets_prices)
            raise UserError(
                f"--policy {self.name} --actions {kind}: it chooses among {self.acts_on} of whole "
                f"plans; take one of {able}, or --actions tiers"
            )

    def codec(self, table: Actions, groups: Sequence[Sequence[str]]) -> ActionCodec:
        """From its actions to tiers of `table`; presets are of these groups of classes.

        Raises UserError for a table that it cannot choose from.
        """
        from policies.action_codec import BoxCodec, TierCodec, presets_of
        from policies.actions import ActionTable

        self.check_actions(table.kind)
        if self.acts_on == "presets":
            assert isinstance(table, ActionTable)
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
