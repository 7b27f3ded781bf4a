"""Train a controller on an engine, compare it with fixed trees, export it: `--help` says how.

The command only; what it does is in the package `train/`.
"""

import sys

from train.command_line import parse_with_files, run_command
from train.config import TrainConfig
from train.run_folder import settings_files


def main() -> None:
    """Parse, check, run."""
    config = parse_with_files(TrainConfig, sys.argv[1:], "train.py", settings_files)
    config.check()
    from train.session import train

    train(config)


if __name__ == "__main__":
    run_command(main)
