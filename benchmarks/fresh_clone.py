"""`make train` and `make test` as a newcomer meets them: in a fresh clone, unattended, timed.

The clone is of HEAD, so what is not committed is not in it. pip's own cache is used as it stands.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from benchmarks.bench import Bench
from benchmarks.figures import MissingHardwareError, Result, UnmeasuredError

CORES = 2
TRAIN_LIMIT_S = 40 * 60.0
TEST_LIMIT_S = 30 * 60.0
QUICK_TRAIN = "--minutes 0.5 --eval-seeds 2 --eval-seconds 40"
TAIL_LINES = 40
# What an outer `make`, or a virtual environment around us, would impose on the clone.
FOREIGN = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "ARGS")
OUTCOMES = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed)\b")
SKIP = re.compile(r"^SKIPPED \[\d+\] (?P<where>[^\s]+):(?: (?P<why>.*))?$", re.MULTILINE)


class Made(NamedTuple):
    """How a `make` ended."""

    seconds: float
    code: int
    timed_out: bool
    output: str

    def tail(self) -> list[str]:
        """The last lines, for finding out what went wrong."""
        return self.output.splitlines()[-TAIL_LINES:]


class Clones:
    """Clones of the repository at `root` in temporary folders; with `reuse` always the same."""

    def __init__(self, root: Path, reuse: bool = False) -> None:
        self.root, self.reuse = root, reuse
        self._kept: list[Path] = []

    @contextmanager
    def clone(self) -> Iterator[tuple[Path, bool]]:
        """A folder with the clone, and whether it was used before; it goes afterwards."""
        if self.reuse and self._kept:
            yield self._kept[0] / "draftgym", True
            return
        folder = Path(tempfile.mkdtemp(prefix="draftgym-clone-"))
        self._kept.append(folder)
        try:
            words = ["git", "clone", "--quiet", "--no-hardlinks", str(self.root), "draftgym"]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                raise UnmeasuredError(f"git clone of {self.root} failed: {done.stderr.strip()}")
            yield folder / "draftgym", False
        finally:
            if not self.reuse:
                self.close()

    def close(self) -> None:
        """Remove what is left."""
        while self._kept:
            shutil.rmtree(self._kept.pop(), ignore_errors=True)

    def uncommitted(self) -> bool:
        """Whether the working tree holds anything that the clone lacks."""
        words = ["git", "status", "--porcelain"]
        done = subprocess.run(words, cwd=self.root, capture_output=True, text=True, check=False)
        return bool(done.stdout.strip())


def make_train(bench: Bench, _: str) -> Result:
    """Minutes from nothing but the clone to the exported controller, model download included."""
    _require_tools()
    with bench.clones.clone() as (folder, used):
        cache = folder.parent / "cache"
        words = ["make", "train", *([f"ARGS={QUICK_TRAIN}"] if bench.quick else [])]
        made = make(bench, folder, words, {"DRAFTGYM_CACHE": str(cache)}, TRAIN_LIMIT_S)
        exported = sorted(
            str(path.relative_to(folder)) for path in folder.glob("runs/*/controller/manifest.json")
        )
    broken = _failure(made, words)
    if not broken and not exported:
        broken = "make train ended well, but runs/*/controller/manifest.json is not there"
    note = "model cached already: no, an empty cache was given; pip's cache as it stands"
    return _timed(bench, made, broken, note, used, {"command": words, "exported": exported})


def make_test(bench: Bench, _: str) -> Result:
    """Minutes of `make test` from nothing but the clone; every skip must have a reason."""
    _require_tools()
    cached = _model_is_cached()
    words = ["make", "test"]
    with bench.clones.clone() as (folder, used):
        # The clone lies elsewhere, so the tests are told where the shared data are.
        shared = os.environ.get("DRAFTGYM_SHARED") or str(bench.clones.root.parent / "shared/data")
        more = {"DRAFTGYM_SHARED": shared} if Path(shared).is_dir() else {}
        made = make(bench, folder, words, more, TEST_LIMIT_S)
    counts, skips = outcomes(made.output), skip_reasons(made.output)
    broken = _failure(made, words)
    if not broken and not counts.get("passed"):
        broken = "make test ended well, but no test ran"
    silent = [where for where, why in skips if not why]
    if not broken and silent:
        broken = f"skipped without a reason: {', '.join(silent)}"
    note = f"{counts.get('passed', 0)} passed, {counts.get('skipped', 0)} skipped"
    reasons = sorted({why for _, why in skips if why})
    if reasons:
        note += f" ({'; '.join(reasons)})"
    note += f"; model cached already: {'yes' if cached else 'no'}"
    raw = {"command": words, "outcomes": counts, "skips": [list(skip) for skip in skips]}
    return _timed(bench, made, broken, note, used, raw)


def make(
    bench: Bench, folder: Path, words: list[str], more: dict[str, str], limit_s: float
) -> Made:
    """Run `words` in the clone on two cores with nobody at the keyboard."""
    environment = {k: v for k, v in os.environ.items() if k not in FOREIGN} | more
    log = folder.parent / "output.txt"
    begun, timed_out = perf_counter(), False
    with log.open("w", encoding="utf-8") as output, _on_cores(CORES):
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            spent = perf_counter() - begun
            if spent > limit_s:
                timed_out = True
                break
            bench.say(f"{' '.join(words[:2])}: {spent / 60:.1f} minutes")
            try:
                process.wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                continue
    finally:
        if process.poll() is None:  # also when we are interrupted
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    seconds = perf_counter() - begun
    return Made(seconds, process.returncode, timed_out, log.read_text("utf-8", "replace"))


def outcomes(output: str) -> dict[str, int]:
    """Counts in pytest's last line, by outcome."""
    lines = [line for line in output.splitlines() if re.search(r" in \d+(\.\d+)?s", line)]
    return {kind: int(count) for count, kind in OUTCOMES.findall(lines[-1])} if lines else {}


def skip_reasons(output: str) -> list[tuple[str, str]]:
    """Where and why tests were skipped, from pytest's summary; an empty reason is none."""
    found = [(m["where"], (m["why"] or "").strip()) for m in SKIP.finditer(output)]
    return [(where, "" if why == "unconditional skip" else why) for where, why in found]


def _timed(
    bench: Bench, made: Made, broken: str, note: str, used: bool, raw: dict[str, Any]
) -> Result:
    if used:
        note += "; in the clone of make train, so setting up is not in it"
    if bench.clones.uncommitted():
        note += "; the clone is of HEAD, uncommitted changes are not in it"
    raw |= {"seconds": made.seconds, "exit_code": made.code, "cores": CORES}
    if broken:
        raw["tail"] = made.tail()
    minutes = made.seconds / 60
    return Result(minutes, f"{minutes:.1f} min", note=note, raw=raw, broken=broken)


def _failure(made: Made, words: list[str]) -> str:
    name = " ".join(words[:2])
    if made.timed_out:
        return f"{name} was stopped after {made.seconds / 60:.0f} minutes"
    if made.code:
        last = next((line for line in reversed(made.tail()) if line.strip()), "no output")
        return f"{name} ended with exit code {made.code}: {last.strip()}"
    return ""


def _require_tools() -> None:
    missing = [tool for tool in ("git", "make") if shutil.which(tool) is None]
    if missing:
        raise UnmeasuredError(f"{' and '.join(missing)} not found; install it and measure again")
    if len(_usable_cores()) < CORES:
        raise MissingHardwareError(f"needs {CORES} cores, this process may use one")


def _model_is_cached() -> bool:
    from models.model_cache import cache_root

    return any((cache_root() / "models").glob("*/model.safetensors"))


def _usable_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def _on_cores(count: int) -> Iterator[None]:
    """Within: what is started gets the first `count` cores only, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
