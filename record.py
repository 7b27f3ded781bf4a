"""Record what the target answers and what the drafter proposes, for replay: `--help` says how."""

import sys

from train.command_line import parse, run_command
from train.record_config import RecordConfig


def main() -> None:
    """Parse, check, run."""
    config = parse(RecordConfig, sys.argv[1:], "record.py")
    config.check()
    from train.recording import record

    record(config)


if __name__ == "__main__":
    run_command(main)
