"""`python -m eval.adaptation_test`: all the work is command.py's."""

import sys

from eval.adaptation_test.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
