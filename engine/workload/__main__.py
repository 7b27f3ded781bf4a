"""`python -m engine.workload NAME`: describe a workload. All the work is command.py's."""

import sys

from engine.workload.command import main

sys.exit(main(sys.argv[1:]))
