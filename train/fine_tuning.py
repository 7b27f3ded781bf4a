"""A policy that was trained on replay goes on on live networks of the recorded model.

What they serve is what was recorded, at loads in multiples of the live engine's own capacity: so
nothing that is held out is trained on, and replay and live compare request by request. What was
lost on the way is `eval.transfer`'s to say; that a run does both, `train.session`'s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import UserError
from engine.replay.drawing import RecordedDrawing
from engine.replay.synthetic.generator import NETWORK as SYNTHETIC
from eval import table, transfer
from train import evaluation
from train.config import Serving, TrainConfig

if TYPE_CHECKING:
    from rich.console import Console

    from engine.drawing import Draw
    from engine.protocol import Controller
    from engine.replay.server import ReplayServer
    from engine.serving import LiveServer
    from engine.workload import WorkloadConfig
    from eval.table import Report
    from train.algorithms.arguments import Arguments
    from train.algorithms.base import Learner
    from train.algorithms.registry import Algorithm
    from train.interrupt import StopRequest
    from train.progress import ProgressLine
    from train.run_folder import RunFolder


def live_serving(replay: ReplayServer, serving: Serving, work: WorkloadConfig) -> Serving:
    """The options of a live server for what `replay` recorded: `work`, as it is drawn there."""
    return replace(
        serving,
        backend="live",
        recording=None,
        profile=None,
        power_cap_watts=None,
        model=replay.manifest.model,
        drafter=replay.manifest.drafter,  # type: ignore[arg-type]  # as it was recorded
        prompt_tokens=work.prompt_tokens,
    )


def load_live(
    replay: ReplayServer,
    config: TrainConfig,
    work: WorkloadConfig,
    load_server: evaluation.LoadServer,
) -> LiveServer:
    """The recorded model with its drafter, live; loaded before training, so that what is missing is
    told before minutes of it. Raises UserError.
    """
    manifest = replay.manifest
    asked = f"--fine-tune-live {config.learning.fine_tune_live}"
    if manifest.network == SYNTHETIC:
        raise UserError(
            f"{asked}: the acceptance of {manifest.model} is synthetic, no networks are at hand "
            "that could go on live; leave it out, or name a recording that record.py made"
        )
    try:
        live: Any = load_server(live_serving(replay, config.serving, work))
    except UserError as error:
        raise UserError(
            f"{asked}: what was recorded, {manifest.model} with {manifest.drafter}, cannot be "
            f"served live here ({error}); leave it out, or name a recording whose model is at hand"
        ) from error
    here = live.identity
    if (here.drafter, here.network) != (manifest.drafter, manifest.network):
        live.close()
        raise UserError(
            f"{asked}: the recording is of {manifest.drafter} ({manifest.network}), live would be "
            f"{here.drafter} ({here.network}); name the recorded one (--draft-head, --draft-model)"
        )
    found: LiveServer = live
    return found


def recorded(
    replay: ReplayServer, live: LiveServer, work: WorkloadConfig, held_out: bool
) -> RecordedDrawing:
    """Requests for recorded texts, at loads in multiples of the live server's capacity."""
    return RecordedDrawing(replay, work, held_out=held_out, capacity_of=live.capacity_of)


def fine_tune(
    replay: ReplayServer,
    live: LiveServer,
    work: WorkloadConfig,
    trained: Learner,
    config: TrainConfig,
    run: RunFolder,
    line: ProgressLine,
    stop: StopRequest,
) -> Learner:
    """Go on with `trained`, the run's winner, for `--fine-tune-live` decisions in all.

    Weights, optimizer, counters and action table are kept; a replay buffer begins empty, since what
    it holds took other times. Where this run did a part of it before, it goes on from there. Saved
    as `fine_tuned` of the run, at the end and on the way. Raises UserError as `train_model`.
    """
    from train.algorithms.arguments import arguments_of, fine_tuning_arguments
    from train.callbacks import Clock, Extent
    from train.environments import environment
    from train.learning import Course, follow

    tuned = fine_tuning_arguments(arguments_of(config), config)
    env = environment(live, _training_draw(replay, live, work, config), config, tuned)
    model = _model(env, trained, config, tuned, run)
    decisions = config.learning.fine_tune_live
    extent = Extent(Clock(model.trained_s), math.inf, decisions, trained.num_timesteps)
    if extent.share(model.num_timesteps) < 1.0:
        follow(Course(model, env, live, config, run, extent, run.fine_tuned), line, stop)
    return model


def latest_model(run: RunFolder, trained: Learner, algorithm: Algorithm) -> Learner:
    """What went on from `trained`, the run's winner, on live; itself where nothing did.

    What went on from an earlier winner is out of date.
    """
    from train.saved_model import load_model

    if not run.fine_tuned.is_file():
        return trained
    model = load_model(run.fine_tuned, algorithm)
    return model if model.tuned_from == trained.num_timesteps else trained


def compare(
    replay: ReplayServer,
    live: LiveServer,
    work: WorkloadConfig,
    config: TrainConfig,
    controllers: Mapping[str, Controller],
    console: Console,
    stop: StopRequest,
) -> tuple[Report, transfer.Transfer]:
    """Both policies on live and on replay, over the same held-out seeds: the live report, the loss.

    `controllers` are the one before and the one after, in this order. Each serves as long on replay
    as live. Raises Stopped.
    """
    of_live = live_serving(replay, config.serving, work)
    seeds, total_s = replace(config, serving=of_live).comparison
    seconds = evaluation.seconds_a_run(total_s, seeds, len(controllers))
    before, after = controllers
    rng = np.random.default_rng(config.seed)

    def drawn(shown: WorkloadConfig) -> Draw:
        return recorded(replay, live, shown, held_out=True)

    on_replay = evaluation.compare(
        replay, config.serving, controllers, after, seeds, seconds, rng, console, stop
    )
    on_live = evaluation.compare(
        live, of_live, controllers, after, seeds, seconds, rng, console, stop, drawn=drawn
    )
    evaluation.show(on_live, console)
    found = transfer.transfer_of(on_replay.comparison, on_live.comparison, before, after, rng)
    console.print(transfer.as_rich(found))
    console.print(found.verdict, highlight=False, markup=False, soft_wrap=True)
    return on_live, found


def results(on_live: Report, lost: transfer.Transfer) -> dict[str, Any]:
    """For results.json: the comparison on live, and what was lost."""
    return {"live": table.as_json(on_live), "transfer": transfer.as_json(lost)}


def in_markdown(on_live: Report, lost: transfer.Transfer) -> str:
    """For results.md, likewise."""
    return f"{table.as_markdown(on_live)}\n{transfer.as_markdown(lost)}"


def _training_draw(
    replay: ReplayServer, live: LiveServer, work: WorkloadConfig, config: TrainConfig
) -> Draw:
    """What training on replay drew in the end, without a curriculum, which it has behind it."""
    from train.randomised import randomised

    served = randomised(work, "live") if config.episodes.randomise else work
    return recorded(replay, live, served, held_out=False)


def _model(
    env: Any, trained: Learner, config: TrainConfig, arguments: Arguments, run: RunFolder
) -> Learner:
    """The run's policy in the live environment, as it was left there or comes from replay."""
    from train.first_model import other_arrivals, per_second
    from train.saved_model import load_model

    begun = latest_model(run, trained, arguments.algorithm) is not trained
    gamma = per_second(config.learning.half_life_s)
    model = load_model(
        run.fine_tuned if begun else run.winner(config),
        arguments.algorithm, env, arguments, gamma, experience=begun,
    )  # fmt: skip
    if not begun:
        model.trained_s = trained.trained_s
    model.tuned_from = trained.num_timesteps
    other_arrivals(model, config)
    return model
