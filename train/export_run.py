"""`export.py`: a run's controller folder again, from its checkpoint, and the check that it agrees.

How a policy is turned into a folder is `train.export`'s, what agreeing means `train.agreement`'s.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import UserError
from policies.learned import LearnedController
from policies.registry import exported_folder
from train.algorithms.registry import ALGORITHMS
from train.command_line import parse_with_files
from train.config import ExportConfig, TrainConfig
from train.run_folder import RunFolder, settings_files

if TYPE_CHECKING:
    from rich.console import Console

    from train.algorithms.base import Learner

SEED = 0  # of the observations that are compared


def export_run(config: ExportConfig, console: Console) -> Path:
    """Write the folder, say where, and with `check` compare; returns the folder."""
    run = RunFolder.open(config.run)
    settings = parse_with_files(
        TrainConfig, ["--resume", str(run.path)], "train.py", settings_files
    )
    from train.agreement import compare
    from train.export import export
    from train.fine_tuning import latest_model
    from train.saved_model import load_model
    from train.task import task_of

    algorithm = ALGORITHMS[settings.learning.policy]
    which = run.winner(settings) if config.which is None else run.model(config.which)
    model = load_model(which, algorithm)
    if which == run.winner(settings):
        model = latest_model(run, model, algorithm)
    if not model.updates and model.imitated is None:
        needed, setting = model.first_update()
        raise UserError(
            f"{run.path}: {which.relative_to(run.path)} was saved before the first update, which "
            f"takes {needed:,} decisions, so it has learned nothing; train for longer (--resume "
            f"{run.path} --minutes), or lower {setting} (--set)"
        )
    folder = config.out or run.controller
    controller = export(
        model,
        folder,
        settings.learning.decide_every,
        _figures(run, model, settings, is_compared=which == run.winner(settings)),
        config.onnx,
        task_of(settings.learning.kind, settings.preset).observation,
    )
    console.print(f"controller  {folder}", highlight=False, soft_wrap=True)
    if config.check:
        found = compare(model, controller, np.random.default_rng(SEED))
        if not found.holds:
            raise UserError(
                f"{folder}: {found.differing_actions} of {found.observations} actions differ from "
                "the trained policy's; do not use it, and please report this"
            )
        console.print(
            f"check       all {found.observations:,} actions equal the trained policy's "
            f"(outputs differ by at most {found.largest_difference:.1e})",
            highlight=False,
            soft_wrap=True,
        )
    return folder


def _figures(
    run: RunFolder, model: Learner, settings: TrainConfig, is_compared: bool
) -> dict[str, Any]:
    """Those of the manifest that training wrote, where it got so far.

    Only the model that a run exports was compared, so the verdict is kept for that one alone.
    """
    serving = settings.serving
    training: dict[str, Any] = {
        "algorithm": settings.learning.policy,
        "made": "from a run's checkpoint",
        "served": f"{serving.model or serving.backend} · {serving.workload} load",
        "machine": "the machine named in versions.json of the run",
        "seed": settings.seed,
        "verdict": "not compared with anything yet.",
        "notes": [],
    }
    written = exported_folder(str(run.path))
    if written is not None:
        # A damaged one, or one of another version, is what is being replaced.
        with contextlib.suppress(UserError):
            training |= LearnedController.load(written).manifest.training
    if not is_compared:
        training |= {"verdict": "not compared with anything yet.", "notes": []}
    if model.tuned_from is None:
        training["fine_tuned"] = None
    return training | {
        "decisions": int(model.num_timesteps),
        "updates": model.updates,
        "imitated": model.imitated,
        "seconds": round(float(model.trained_s), 1),
        "observed": run.observed(),
    }
