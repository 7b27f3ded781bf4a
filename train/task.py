"""What a policy is trained on beyond the options: whom it serves, what it sees, chooses and earns.

Without `--preset` that is our own task. A preset is a published set-up by name: what of it has an
option stands in train/presets/NAME.toml, the weakest of all defaults (`train.run_folder`), its
hyper-parameters in a section of that name of train/hyperparameters/*.yaml, and the rest here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.errors import UserError
from policies.actions import Actions, ActionTable, sized_tiers
from policies.price_actions import PriceActions
from train.algorithms.registry import ALGORITHMS, Kind

if TYPE_CHECKING:
    from envs.observing import Size
    from envs.reward import GoodputReward
    from train.config import TrainConfig

FOLDER = Path(__file__).resolve().parent / "presets"
TABLES: dict[str, Callable[[tuple[str, ...]], Actions]] = {
    "tiers": ActionTable,
    "sized-tiers": sized_tiers,
    "prices": PriceActions,
}
"""What is chosen from, for classes of these names, by `train.config.Learning.kind`."""


@dataclass(frozen=True)
class Task:
    """What the environment is made of."""

    actions: Actions
    classes: ClassTable = DEFAULT_CLASSES
    observation: Size = "aggregate"
    rewards_rate: bool = False
    """Tokens a second of each decision in place of tokens, as `envs.reward.GoodputReward.form`."""
    starts_small: bool = True
    """An untrained policy prefers small trees. With one request at a time no queue punishes it for
    large ones."""

    def reward(self, at_prices: GoodputReward) -> GoodputReward:
        """The reward at the prices of the options."""
        return replace(at_prices, form="rate") if self.rewards_rate else at_prices


def task_of(kind: Kind, preset: str | None, observation: Size = "aggregate") -> Task:
    """Of what is chosen from, of `--preset` and, where there is none, of what is observed; all as
    in a run's config.toml."""
    if preset is None:
        return Task(TABLES[kind](DEFAULT_CLASSES.names), observation=observation)
    from envs.learning_to_draft import learning_to_draft

    options = learning_to_draft()
    return Task(
        options["actions"],
        options["classes"],
        options["observation"],
        rewards_rate=options["reward"].form == "rate",
        starts_small=False,
    )


def settings_of(preset: str) -> Path:
    """The TOML file of a preset's settings."""
    return FOLDER / f"{preset}.toml"


def check_live(config: TrainConfig, engines: int) -> None:
    """Raise UserError for a task that several live engines, or --fine-tune-live, do not serve."""
    learning = config.learning
    several = config.serving.backend == "live" and engines > 1
    if not several and (config.preset is None or learning.fine_tune_live is None):
        return
    task = f"--preset {config.preset}" if config.preset is not None else ""
    if not task and learning.observation != "aggregate":
        task = f"--observation {learning.observation}"
    if task:
        asked = (
            f"--set n_envs={engines}" if several else f"--fine-tune-live {learning.fine_tune_live}"
        )
        raise UserError(
            f"{task} {asked}: learns on one engine from its start; leave one of them out"
        )


def check_preset(config: TrainConfig) -> None:
    """Raise UserError for what does not go together with `--preset`, or needs one."""
    learning, preset = config.learning, config.preset
    if preset is None:
        if learning.half_life_s == 0:
            raise UserError(
                "--half-life-s 0: tokens would count and the time that they took would not; "
                "expected a number above 0"
            )
        return
    said = f"--preset {preset}"
    if config.serving.slots != 1:
        raise UserError(
            f"{said} --slots {config.serving.slots}: observes one request at a time; leave "
            "--slots out"
        )
    if learning.observation != "aggregate":
        raise UserError(
            f"{said} --observation {learning.observation}: observes the paths of one request; "
            "leave --observation out"
        )
    if learning.kind != "tiers":
        raise UserError(
            f"{said} --actions {learning.kind}: has trees of its own to choose from; leave "
            "--actions out"
        )
    if ALGORITHMS[learning.policy].acts_on == "masked tiers":
        raise UserError(
            f"{said} --policy {learning.policy}: masks are worked out from features that it does "
            "not observe; take ppo, a2c or recurrent-ppo"
        )
    if learning.imitate is not None:
        raise UserError(
            f"{said} --imitate {learning.imitate}: imitation records features that it does not "
            "observe; leave it out"
        )
    if config.reward.limits or config.reward.centre_rewards:
        name = "limits" if config.reward.limits else "centre-rewards"
        raise UserError(
            f"{said} --{name}: charges tokens by the time that passes, and what is rewarded "
            "are tokens a second of each decision; leave it out"
        )
