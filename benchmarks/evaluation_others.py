"""The two figures whose measurements come with what they measure."""

from __future__ import annotations

import importlib

from benchmarks.bench import Bench
from benchmarks.figures import Result, UnmeasuredError


def adaptation(bench: Bench, _: str) -> Result:
    """Minutes that the adaptation test takes."""
    return _measured("benchmarks.evaluation_adaptation", bench)


def report(bench: Bench, _: str) -> Result:
    """Seconds until a report is there in a browser."""
    return _measured("benchmarks.evaluation_report", bench)


def _measured(module: str, bench: Bench) -> Result:
    try:
        measured = importlib.import_module(module).measured
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UnmeasuredError(f"{module} is not part of this checkout") from error
    result: Result = measured(bench, "")
    return result
