"""`python -m engine.replay.synthetic`: draw, check and fit. All the work is command.py's."""

import sys

from engine.replay.synthetic.command import main

sys.exit(main(sys.argv[1:]))
