"""A whole run of `record.py`: choose texts, record them shard by shard, and tell what came out.

Composes the others: choosing is the recipe's, recording the recorder's, storing the folder's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from engine.drawing import prompt_encoder
from engine.replay import recording_folder as folder_of
from engine.replay.recipe import Task, choose_texts, digest
from engine.workload.prompt_set import PromptSet
from train.interrupt import StopRequest
from train.progress import ProgressLine, new_console
from train.record_config import RecordConfig

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from engine.replay.recorder import Recorder
    from engine.replay.recording import Manifest, Recording
    from engine.serving import LiveServer

TEXTS_PER_SHARD = 16
PLANS = {"chain(4)": (4, 1, 4), "eagle3(6,8,32)": (6, 8, 32)}  # depth, width, nodes
LEAST_CAPACITY = 256  # a server measures itself as it starts


def record(
    config: RecordConfig,
    load_server: Callable[[RecordConfig], LiveServer] | None = None,
    console: Console | None = None,
    stop: StopRequest | None = None,
) -> None:
    """Record what `config.out` lacks, shard by shard; a stop ends it behind the shard under way.

    Raises UserError for what the user can mend.
    """
    console, stop = console or new_console(), stop or StopRequest()
    recipe = config.texts
    prompts = PromptSet.load(recipe.prompts or None)  # what is wrong is told before loading
    for name in recipe.classes:
        prompts.of(name)
    console.print("loading and measuring the target …", style="dim")
    server = (load_server or load)(config)
    from engine.replay.recorder import Recorder

    recorder = Recorder(server)
    tasks = choose_texts(recipe, prompts, prompt_encoder(server))
    asked = {**asdict(recipe), "prompts_digest": digest(tasks)}
    folder_of.take_up(config.out, recorder.manifest(recipe.classes), asked)
    starts = range(0, len(tasks), TEXTS_PER_SHARD)
    missing = [
        (index, tasks[start : start + TEXTS_PER_SHARD])
        for index, start in enumerate(starts)
        if not folder_of.shard_path(config.out, index).is_file()
    ]
    if missing:
        folder_of.mark_unfinished(config.out)
    with stop:
        done = _record_shards(recorder, missing, config, console, stop)
    if done < len(missing):
        console.print(
            f"stopped with {len(missing) - done} of {len(starts)} shards to go; repeat the command "
            f"to go on in {config.out}",
            highlight=False,
            soft_wrap=True,
        )
        return
    folder_of.mark_done(config.out)
    show(config, *folder_of.load(config.out), console)


def load(config: RecordConfig) -> LiveServer:
    """The live server to record; takes seconds. Raises UserError."""
    from engine.protocol import Limits
    from engine.serving import LiveConfig, LiveServer

    needed = config.texts.prompt_tokens + config.texts.tokens + Limits().max_nodes + 1
    return LiveServer.load(
        LiveConfig(
            model=config.model,
            draft_head=config.draft_head,
            dtype=config.dtype,
            threads=config.threads,
            device="cpu",
            slots=TEXTS_PER_SHARD,
            capacity_tokens=max(needed, LEAST_CAPACITY),
        )
    )


def _record_shards(
    recorder: Recorder,
    shards: list[tuple[int, list[Task]]],
    config: RecordConfig,
    console: Console,
    stop: StopRequest,
) -> int:
    """Record these shards; how many were, before a stop was asked for."""
    tokens = config.texts.tokens
    total = sum(len(tasks) for _, tasks in shards) * (tokens - 1)
    begun, places = time.monotonic(), 0
    settings = recorder.server.settings
    # Prompts come all at once and nobody waits for a first token.
    recorder.server.settings = replace(settings, prefill_tokens=settings.context_tokens)
    with ProgressLine(console, "record", total) as line:

        def advance(more: int) -> None:
            nonlocal places
            places += more
            rate = places / (time.monotonic() - begun)
            said = f"{places:,} of {total:,} places", f"{rate:.0f} places/s"
            line.update(places, *said, left_s=(total - places) / rate)

        for done, (index, tasks) in enumerate(shards):
            if stop.requested:
                return done
            shard = recorder.record(tasks, tokens, advance)
            folder_of.write_shard(config.out, shard, index)
    return len(shards)


def show(config: RecordConfig, manifest: Manifest, recording: Recording, console: Console) -> None:
    """Print what was recorded and where it lies."""
    from engine.replay.recording import ROOT, full_places

    n_bytes = sum(path.stat().st_size for path in config.out.iterdir())
    console.print(as_table(manifest, recording))
    nodes = len(recording.parent)
    console.print(
        f"{recording.texts} texts, {recording.places:,} places, {nodes:,} nodes "
        f"({nodes / recording.places:.0f} a place), {n_bytes / 1e6:.1f} MB "
        f"({n_bytes / recording.places:.0f} bytes a place)",
        highlight=False,
    )
    # Counted in what is stored: a recorder that was stopped has forgotten what it left out.
    if full := full_places(recording):
        console.print(
            f"{full:,} of {recording.places:,} places hold {ROOT} nodes, the most that fit: a tree "
            "there may lack some",
            highlight=False,
        )
    console.print(f"recording   {config.out}", highlight=False, soft_wrap=True)


def as_table(manifest: Manifest, recording: Recording) -> Table:
    """Texts and places by class, and the mean accepted length of two fixed trees."""
    import numpy as np
    from rich.table import Table

    from engine.replay.acceptance import accepted_lengths, mean_accepted, on_path
    from engine.replay.recording import select_texts

    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("class", "texts", "held out", "places", "nodes", *PLANS):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for index, name in enumerate((*manifest.classes, "all")):
        of_class = recording.text_class == index
        part = recording
        if index < len(manifest.classes):
            part = select_texts(recording, np.flatnonzero(of_class))
        path = on_path(part)
        means = [mean_accepted(part, accepted_lengths(part, path, *p)) for p in PLANS.values()]
        counts = part.texts, int(part.held_out.sum()), part.places, len(part.parent)
        table.add_row(name, *(f"{count:,}" for count in counts), *(f"{m:.2f}" for m in means))
    return table
