"""A cell as it is served: the pair's replay server and the workload at its load.

Every run has about the same number of requests, so a cell costs about the same whatever the pair's
speed, and its shares are of alike many. What is loaded or drawn is kept by process.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.profile.published import open_profile
from engine.replay.drawing import RecordedDrawing
from engine.replay.prompt_lengths import with_prompts
from engine.replay.recording import Manifest, Recording
from engine.replay.recording_folder import load
from engine.replay.server import DEFAULT_PROFILE, DEFAULT_RECORDING, ReplayServer
from engine.replay.synthetic.generator import Shown, SyntheticConfig, draw_recording
from engine.replay.synthetic.pairs import find_pair
from engine.workload import Disturbance, WorkloadConfig
from engine.workload.capacity_mix import mean_lengths
from eval.compare import ARRIVING
from eval.matrix.axes import BURSTS, MIXES, Cell, Pair

TEXTS_A_CLASS = 32
TOKENS = 128
"""Of a drawn text; the recording that ships has as many."""
SPIKE_AT, SPIKE_LASTS = 0.4, 0.1
"""Of the time in which requests arrive."""


class World(NamedTuple):
    """What a cell is served on."""

    server: ReplayServer
    config: WorkloadConfig
    draw: RecordedDrawing
    """Of held-out texts."""
    seconds: float
    """Engine time of a run; requests arrive in its first part."""
    capacity_tps: float
    """Answer tokens a second at capacity: what goodput is a multiple of."""


def world_of(cell: Cell, requests: int, classes: ClassTable = DEFAULT_CLASSES) -> World:
    """The cell with about so many requests a run. Raises UserError."""
    server = _server(cell.pair, cell.prompt_tokens)
    load_only = _workload(cell, 1.0)
    capacity_rps = RecordedDrawing(server, load_only, classes, held_out=True).capacity_rps
    arriving_s = requests / (cell.load * capacity_rps)
    config = _workload(cell, arriving_s)
    draw = RecordedDrawing(server, config, classes, True, lambda _: capacity_rps)
    _, tokens = mean_lengths(draw.asked)
    return World(server, config, draw, arriving_s / ARRIVING, capacity_rps * tokens)


def _workload(cell: Cell, duration_s: float) -> WorkloadConfig:
    burst = BURSTS[cell.burst]
    begins_s, lasts_s = SPIKE_AT * duration_s, SPIKE_LASTS * duration_s
    spike = Disturbance("arrival_rate", begins_s, begins_s + lasts_s, burst.spike)
    return WorkloadConfig(
        name=cell.name,
        duration_s=duration_s,
        load=cell.load / (1.0 + SPIKE_LASTS * (burst.spike - 1.0)),
        mix=MIXES[cell.mix],
        cv=burst.cv,
        process=burst.process,
        max_tokens=cell.output_tokens,
        prompt_tokens=cell.prompt_tokens,
        disturbances=() if burst.spike == 1.0 else (spike,),
    )


@cache
def _server(pair: Pair, prompt_tokens: int) -> ReplayServer:
    manifest, recording = _acceptance(pair.acceptance, pair.shown)
    lengths = np.full(recording.texts, prompt_tokens)
    profile = open_profile(pair.profile or DEFAULT_PROFILE)
    return ReplayServer(manifest, with_prompts(recording, lengths), profile)


@cache
def _acceptance(name: str, shown: Shown) -> tuple[Manifest, Recording]:
    """The recording that ships, or one that is drawn of a published pair: always the same one."""
    if not name:
        return load(DEFAULT_RECORDING)
    config = SyntheticConfig(
        texts_per_class=TEXTS_A_CLASS, tokens=TOKENS, prompt_tokens=1, shown=shown
    )
    return draw_recording(find_pair(name), config, np.random.default_rng(0))
