"""`python -m models.distill generate` makes the data, `… train` trains the head; both resume.

The two may run side by side: training reads the shards that are complete.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

STARTERS = Path(__file__).with_name("starters.toml")


@dataclass(frozen=True)
class GenerateConfig:
    """Let the target write prompts and answers, and keep what it saw at each token."""

    data: Path
    """Folder of shards; more are added to those that are there."""
    target: str = "smollm2-135m-instruct"
    starters: Path = STARTERS
    prompts: Path | None = None
    """JSONL file of prompts to mix in (class `given` of the starters)."""
    minutes: float = 40.0
    slots: int = 96
    answer_tokens: int = 256
    seed: int = 0
    threads: int = 2


@dataclass(frozen=True)
class TrainConfig:
    """Train an EAGLE-3 head on shards; checkpoints after every `save_every` steps."""

    data: Path
    out: Path
    """Run folder: checkpoint, TensorBoard events and the exported head."""
    target: str = "smollm2-135m-instruct"
    minutes: float = 60.0
    """Time of this call; the learning rate falls to zero over its last `decay` share."""
    decay: float = 0.3
    draft_vocab: int = 8192
    unroll: int = 5
    """Draft steps that a position is unrolled for in training."""
    step_weight: float = 0.9
    """Loss weight of unrolled step i is step_weight ** i."""
    train_output: bool = False
    """Train the output rows too, instead of keeping the target's."""
    batch_tokens: int = 3000
    learning_rate: float = 8e-4
    save_every: int = 200
    seed: int = 0
    threads: int = 2
    held_out_shards: int = 1
    """The first shards are never trained on; the accuracy curve is measured there."""


def main() -> None:
    """Parse the command line and run the chosen half."""
    from models.errors import UserError

    command = tyro.cli(
        Annotated[GenerateConfig, tyro.conf.subcommand("generate")]
        | Annotated[TrainConfig, tyro.conf.subcommand("train")],
        prog="python -m models.distill",
    )
    try:
        if isinstance(command, GenerateConfig):
            from models.distill.commands import generate

            generate(command)
        else:
            from models.distill.training import train

            train(command)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from what is saved", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
