"""Tune a controller's constants or a learning algorithm's hyper-parameters: `--help` says how."""

import sys

from train.command_line import parse_with_files, run_command
from train.tuning.study_folder import settings_files
from train.tuning.tune_config import TuneConfig


def main() -> None:
    """Parse, check, run."""
    config = parse_with_files(TuneConfig, sys.argv[1:], "tune.py", settings_files)
    config.check()
    from train.tuning.session import tune

    tune(config)


if __name__ == "__main__":
    run_command(main)
