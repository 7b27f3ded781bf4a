"""`python -m engine.profile.published`: list, check or rebuild. All the work is command.py's."""

import sys

from engine.profile.published.command import main

sys.exit(main(sys.argv[1:]))
