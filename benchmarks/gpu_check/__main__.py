"""`python -m benchmarks.gpu_check`: all the work is command.py's."""

from benchmarks.gpu_check.command import main
from train.command_line import run_command

run_command(main)
