"""Runs of `train.py` and `tune.py`, each in a process of its own, kept once finished.

All lie in runs/learning-benchmark. One that was cut is taken up where it was; one that is finished
serves every figure that asks for the same, which is the same options, seed, hyper-parameters and
environment. What else may change in the code does not make another run of it: to have a run made
anew, delete its folder. Quick ones have folders of their own.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.command import ROOT
from benchmarks.figures import UnmeasuredError
from benchmarks.learning_processes import Job, Watch, side_by_side, unwatched
from benchmarks.replay_training import CORES, need_cores
from engine.errors import UserError

FOLDER = ROOT / "runs" / "learning-benchmark"
QUICK_MINUTES = 0.3


def folder_of(bench: Bench) -> Path:
    """Where the runs are kept."""
    return FOLDER / "quick" if bench.quick else FOLDER


def trained(
    bench: Bench,
    options: Sequence[str],
    seed: int = 0,
    anew: bool = False,
    watch: Watch = unwatched,
) -> Path:
    """The run folder of `train.py` with these options on two cores, without its comparison.

    `watch` is handed the folder about once a second while it trains. Raises UnmeasuredError where
    train.py does not take the options or fails.
    """
    need_cores()
    run = _folder(bench, options, seed)
    if anew:
        shutil.rmtree(run, ignore_errors=True)
    if not _is_done(run):
        side_by_side(bench, [_training(bench, options, seed, watch)], lanes=1)
    return _finished(run)


def trainings(bench: Bench, options: Sequence[str], seeds: Sequence[int]) -> list[Path]:
    """The run folders of so many trainings, one for each seed, two at a time on a core each.

    Give them their length in decisions, or what they come to depends on what else runs.
    """
    need_cores()
    runs = [_folder(bench, options, seed) for seed in seeds]
    left = [
        _training(bench, options, seed)
        for seed, run in zip(seeds, runs, strict=True)
        if not _is_done(run)
    ]
    side_by_side(bench, left, lanes=CORES)
    return [_finished(run) for run in runs]


def studied(bench: Bench, policy: str, options: Sequence[str]) -> dict[str, Any]:
    """What `tune.py` wrote of a study of this controller: results.json."""
    study = folder_of(bench) / f"tune-{policy}-{digest([policy, *options])}"
    results = study / "results.json"
    if not results.is_file():
        asked = ["--out", str(study), "--policy", policy, *options]
        words = ("tune.py", *_taken_up(study, asked))
        side_by_side(bench, [Job(words, study, f"tuning {policy}")], lanes=1)
    try:
        found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnmeasuredError(f"tune.py left no results in {study} ({error})") from error
    return found


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


def _options(bench: Bench, options: Sequence[str]) -> list[str]:
    return [*options, *(("--minutes", f"{QUICK_MINUTES:g}") if bench.quick else ())]


def _folder(bench: Bench, options: Sequence[str], seed: int) -> Path:
    asked = digest(_asked(_options(bench, options)))
    return folder_of(bench) / f"{_named(options)}-seed{seed}-{asked}"


def _training(bench: Bench, options: Sequence[str], seed: int, watch: Watch = unwatched) -> Job:
    run = _folder(bench, options, seed)
    asked = ["--out", str(run), *_options(bench, options), "--seed", str(seed), "--eval-seeds", "0"]
    return Job(("train.py", *_taken_up(run, asked)), run, f"training {run.name}", watch)


def _finished(run: Path) -> Path:
    if not _is_done(run):
        raise UnmeasuredError(f"train.py left {run} unfinished; repeat the command to go on")
    return run


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
