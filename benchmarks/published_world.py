"""A machine and a pair of models that are not here, as published: where AdaServe's figures replay.

Acceptance is synthetic (docs/synthetic.md), one draw a seed; times are a published profile's; when
requests come, how long they are and what they were promised is a trace's. Prompts are made as long
as the trace's: the texts of a class take the quantiles of its prompt lengths, so that their
distribution is the trace's and which request gets which is drawn.

Two choices are ours. *Slots*: 64, the artifact's most requests in a batch. *Mixed*: where a system
reads prompts in the pass in which it decodes (Sarathi, AdaServe), a chunk costs its tokens alone,
since that pass reads the weights anyhow; a system that reads prompts first pays a pass for each.
`apart` makes everybody pay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from engine.classes import ClassTable, SLOClass
from engine.profile.hardware_profile import HardwareProfile
from engine.profile.published import open_profile
from engine.protocol import Ints
from engine.replay.prompt_lengths import with_prompts
from engine.replay.recording import Manifest, Recording
from engine.replay.server import ReplayConfig, ReplayServer
from engine.replay.synthetic.generator import Shown, SyntheticConfig, draw_recording
from engine.replay.synthetic.pairs import find_pair
from engine.workload import WorkloadConfig, draw_arrivals

CLASS_NAMES = ("coding", "chat", "summarization")
ANY_OBJECTIVE = ClassTable(tuple(SLOClass(name, 1.0) for name in CLASS_NAMES))
PAIR = "adaserve-llama-70b"
PROFILE = f"{PAIR}-a100"
SLOTS = 64
TEXTS_A_CLASS = 32
WIDTH, NODES = 4, 32  # AdaServe's beams are 3 wide and 8 deep: 24 candidates
SAMPLE_S = 3600.0
"""So long a piece of a trace that is served in windows tells how long its prompts are."""
MEAN_PROMPTS = (131, 17, 780)
"""Of AdaServe's trace by class: for workloads that tell no lengths."""


class Servers(NamedTuple):
    """Of one seed: the same but for what prompts cost."""

    apart: ReplayServer
    """Every chunk of a prompt is a pass of its own."""
    mixed: ReplayServer
    """Chunks are read in the passes in which others decode."""


@dataclass(frozen=True)
class World:
    """Everything but the seed and the controllers."""

    work: WorkloadConfig
    objectives_s: Mapping[str, float]
    """Seconds per token by class."""
    profile: str = PROFILE
    pair: str = PAIR
    shown: Shown = "calibrated"
    ece: float = 0.065
    apart: bool = False
    """Every chunk of a prompt is a pass of its own, whoever reads it."""

    def servers(self, seed: int) -> Servers:
        """The servers of a seed. Raises UserError."""
        manifest, recording = _acceptance(
            self.pair, self.shown, self.ece, self.work.max_tokens, seed
        )
        profile = open_profile(self.profile)
        rows = self.work.prompt_tokens + self.work.max_tokens + NODES + 1
        lengths = prompt_lengths(self.work, recording.text_class.astype(np.int64), seed)
        sizes = ReplayConfig(slots=SLOTS, capacity_tokens=rows)
        told = with_prompts(recording, lengths)
        mixed = profile if self.apart else with_mixed_prompts(profile)
        return Servers(
            ReplayServer(manifest, told, profile, sizes), ReplayServer(manifest, told, mixed, sizes)
        )

    def classes(self, server: ReplayServer) -> ClassTable:
        """The objectives, as multiples of that server's unloaded time per token."""
        unloaded_s = server.unloaded_tpot_s
        return ClassTable(
            tuple(SLOClass(name, self.objectives_s[name] / unloaded_s) for name in CLASS_NAMES)
        )


def with_mixed_prompts(profile: HardwareProfile) -> HardwareProfile:
    """The same for decoding passes that read prompts along: their base is paid already.

    Where nobody decodes a prompt is then too cheap, by one reading of the weights.
    """
    curve = replace(profile.prefill.curve, base_s=0.0)
    return replace(profile, prefill=replace(profile.prefill, curve=curve))


def prompt_lengths(work: WorkloadConfig, text_class: Ints, seed: int) -> Ints:
    """Prompt tokens for texts of these classes [N]: quantiles of what the workload asks of each."""
    asked: list[Ints] = [np.array([mean]) for mean in MEAN_PROMPTS]
    if work.trace is not None:
        sample = replace(
            work,
            duration_s=work.duration_s if np.isinf(work.duration_s) else SAMPLE_S,
            trace=replace(work.trace, draw_start=False),
            disturbances=(),
            drawn_disturbances=(),
        )
        seen = draw_arrivals(sample, ANY_OBJECTIVE, 1.0, np.random.default_rng(0))
        if seen.prompt_tokens is not None:
            by_class = [seen.prompt_tokens[seen.slo_class == c] for c in range(len(asked))]
            asked = [
                found if len(found) else mean for found, mean in zip(by_class, asked, strict=True)
            ]
    generator = np.random.default_rng((seed, 15))
    lengths = np.ones(len(text_class), np.int64)
    for c, found in enumerate(asked):
        texts = generator.permutation(np.flatnonzero(text_class == c))
        levels = (np.arange(len(texts)) + 0.5) / max(len(texts), 1)
        wanted = np.quantile(found, levels) if len(texts) else levels
        lengths[texts] = np.clip(np.rint(wanted), 1, work.prompt_tokens)
    return lengths


@lru_cache(maxsize=2)
def _acceptance(
    pair: str, shown: Shown, ece: float, tokens: int, seed: int
) -> tuple[Manifest, Recording]:
    """What a seed draws; worlds that differ in their arrivals share it."""
    config = SyntheticConfig(
        texts_per_class=TEXTS_A_CLASS,
        tokens=tokens,
        prompt_tokens=1,
        held_out_share=1.0,
        max_width=WIDTH,
        max_nodes=NODES,
        shown=shown,
        ece=ece,
    )
    return draw_recording(find_pair(pair), config, np.random.default_rng((seed, 14)))
