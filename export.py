"""Write a run's controller folder again, and check it against the trained policy: `--help`."""

import sys

from train.command_line import parse, run_command
from train.config import ExportConfig


def main() -> None:
    """Parse and run."""
    config = parse(ExportConfig, sys.argv[1:], "export.py")
    from train.export_run import export_run
    from train.progress import new_console

    export_run(config, new_console())


if __name__ == "__main__":
    run_command(main)
