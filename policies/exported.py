"""An exported controller as somebody may use it: what else lies in its folder, and has it learned?

`LearnedController.load` reads what the manifest names, and that never runs code. Here the rest of
the folder is looked at too: a file that nobody hashed could be taken for a part of the controller
by another tool, and pickles run what they say. A policy that was exported before it learned
anything is no controller; a training run writes one all the same, so that its folder is whole.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import UserError
from policies.compiled_by_request import CompiledByRequest
from policies.compiled_features import load_kernels, observe_compiled
from policies.learned import LearnedController
from policies.learned_paths import LearnedPaths
from policies.manifest import FILE_NAME


def load_exported(folder: str | Path) -> LearnedController:
    """The controller exported to `folder`, which has learned something.

    Raises UserError, one sentence, also for files that the manifest does not name.
    """
    folder = Path(folder)
    controller = CompiledByRequest.load(folder)  # of that kind, or of another that fits
    named = {FILE_NAME, *controller.manifest.files}
    for path in sorted(folder.iterdir()):
        if path.name not in named:
            raise UserError(
                f"{folder}: {path.name} is not named in the manifest, so nobody knows whether it "
                "runs code; remove it, or export the controller again"
            )
    training = controller.manifest.training
    if training.get("updates") == 0 and training.get("imitated") is None:
        raise UserError(
            f"{folder}: was exported before its first update, so it has learned nothing; train for "
            "longer and export it again"
        )
    if not isinstance(controller, LearnedPaths):
        load_kernels()
        # A compiled one decides without, but a shield asks it.
        controller.features_of = observe_compiled
    return controller
