"""`python -m eval.frontier`: all the work is command.py's."""

import sys

from eval.frontier.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
