"""Runs of `train.py` and `tune.py`, each in a process of its own on two cores, kept once finished.

All lie in runs/learning-benchmark. One that was cut is taken up where it was; one that is finished
serves every figure that asks for the same, which is the same options, seed, hyper-parameters and
environment. What else may change in the code does not make another run of it: to have a run made
anew, delete its folder. Quick ones have folders of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.bench import Bench
from benchmarks.command import ROOT
from benchmarks.figures import UnmeasuredError
from benchmarks.replay_training import CORES, need_cores
from engine.errors import UserError

FOLDER = ROOT / "runs" / "learning-benchmark"
QUICK_MINUTES = 0.3
STOPPING_S = 60.0
"""A process that is asked to end may take so long to save what it has."""
ON_CORES = (
    "import os, sys; c = {cores}; c and os.sched_setaffinity(0, c); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


def folder_of(bench: Bench) -> Path:
    """Where the runs are kept."""
    return FOLDER / "quick" if bench.quick else FOLDER


def trained(
    bench: Bench,
    options: Sequence[str],
    seed: int = 0,
    anew: bool = False,
    watch: Callable[[Path], None] = lambda _: None,
) -> Path:
    """The run folder of `train.py` with these options, without its comparison.

    `watch` is handed the folder about once a second while it trains. Raises UnmeasuredError where
    train.py does not take the options or fails.
    """
    need_cores()
    if bench.quick:
        options = (*options, "--minutes", f"{QUICK_MINUTES:g}")
    name = f"{_named(options)}-seed{seed}-{digest(_asked(options))}"
    run = folder_of(bench) / name
    if anew:
        shutil.rmtree(run, ignore_errors=True)
    if _is_done(run):
        return run
    asked = ["--out", str(run), *options, "--seed", str(seed), "--eval-seeds", "0"]
    process(bench, ["train.py", *_taken_up(run, asked)], run, f"training {name}", watch)
    if not _is_done(run):
        raise UnmeasuredError(f"train.py left {run} unfinished; repeat the command to go on")
    return run


def studied(bench: Bench, policy: str, options: Sequence[str]) -> dict[str, Any]:
    """What `tune.py` wrote of a study of this controller: results.json."""
    study = folder_of(bench) / f"tune-{policy}-{digest([policy, *options])}"
    results = study / "results.json"
    if not results.is_file():
        asked = ["--out", str(study), "--policy", policy, *options]
        process(bench, ["tune.py", *_taken_up(study, asked)], study, f"tuning {policy}")
    try:
        found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnmeasuredError(f"tune.py left no results in {study} ({error})") from error
    return found


def process(
    bench: Bench,
    words: Sequence[str],
    folder: Path,
    doing: str,
    watch: Callable[[Path], None] = lambda _: None,
) -> None:
    """Run a command of the checkout on two cores to its end; its output goes beside `folder`.

    Asked to stop, it is given time to save. Raises UnmeasuredError with its last line if it fails.
    """
    allowed = sorted(os.sched_getaffinity(0))[:CORES] if hasattr(os, "sched_getaffinity") else []
    folder.parent.mkdir(parents=True, exist_ok=True)
    log, begun = folder.with_name(f"{folder.name}.log"), perf_counter()
    with log.open("w", encoding="utf-8") as output:
        command = [sys.executable, "-c", ON_CORES.format(cores=allowed), *words]
        running = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            while running.poll() is None:
                bench.say(f"{doing}: {(perf_counter() - begun) / 60:.1f} minutes")
                watch(folder)
                try:
                    running.wait(timeout=1.0)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if running.poll() is None:  # we are interrupted
                running.terminate()
                try:
                    running.wait(STOPPING_S)
                except subprocess.TimeoutExpired:
                    running.kill()
                    running.wait()
    watch(folder)
    if running.returncode:
        said = log.read_text("utf-8", "replace").strip().splitlines() or ["nothing was said"]
        raise UnmeasuredError(f"{words[0]} failed: {said[-1]}")


def revisions(runs: Sequence[Path]) -> list[str]:
    """The revisions of the code by which runs were made, each once."""
    found = {
        str(json.loads((run / "versions.json").read_text(encoding="utf-8")).get("revision"))
        for run in runs
    }
    return sorted(found)


def digest(value: Any) -> str:
    """Of plain data, short enough for a folder's name."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _named(options: Sequence[str]) -> str:
    """The preset, where there is one, else the algorithm."""
    words = list(options)
    named = "--preset" if "--preset" in words else "--policy"
    return words[words.index(named) + 1]


def _asked(options: Sequence[str]) -> list[Any]:
    """All that makes a run another one. Raises UnmeasuredError for what train.py does not take."""
    from train.algorithms.arguments import arguments_of
    from train.command_line import parse_with_files
    from train.config import TrainConfig
    from train.environment_version import environment_version
    from train.run_folder import settings_files

    asked = [*options, "--eval-seeds", "0"]
    try:
        config = parse_with_files(TrainConfig, asked, "train.py", settings_files)
        config.check()
    except UserError as error:
        raise UnmeasuredError(f"train.py {' '.join(options)}: {error}") from error
    version = environment_version(preset=config.preset)
    return [*options, arguments_of(config).as_yaml(), version]


def _is_done(run: Path) -> bool:
    from train.run_folder import DONE

    return (run / DONE).is_file() and (run / "controller" / "manifest.json").is_file()


def _taken_up(folder: Path, asked: list[str]) -> list[str]:
    """To go on with what stands in the folder, or `asked` where that cannot be taken up."""
    if (folder / "config.toml").is_file() and (folder / "versions.json").is_file():
        return ["--resume", str(folder)]
    shutil.rmtree(folder, ignore_errors=True)
    return asked
