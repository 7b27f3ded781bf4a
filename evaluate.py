"""Compare controllers on the same seeded arrivals, with intervals: `--help` says how."""

import sys

from train.command_line import parse_with_files, run_command
from train.evaluate_config import EvaluateConfig


def main() -> None:
    """Parse, check, run."""
    config = parse_with_files(
        EvaluateConfig, sys.argv[1:], "evaluate.py", lambda c: [c.config] if c.config else []
    )
    if config.list:
        from eval.contenders import list_controllers

        print(list_controllers())
        return
    config.check()
    from train.judging import evaluated
    from train.progress import new_console

    if not evaluated(config, new_console()):
        sys.exit(1)


if __name__ == "__main__":
    run_command(main)
