"""`python -m engine.profile`: measure this machine. All the work is command.py's."""

import sys

from engine.profile.command import main

sys.exit(main(sys.argv[1:]))
