"""Texts of made-up tokens with a state at every place, and the recording of their trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.protocol import Bools, Floats, Ints
from engine.replay.recording import NEVER, Recording
from engine.replay.synthetic.model import Drafting, Tier
from engine.replay.synthetic.trees import TreeDrawing

SAMPLE_VOCAB = 1000


class TextPlan(NamedTuple):
    """One text before its trees are drawn: T output tokens, T - 1 places."""

    level: Floats  # [T - 1] mean of q1 at depth 1, seen factors included
    truth: Floats  # [T - 1] factor on acceptance that the drafter shows nothing of
    tokens: Ints  # [prompt + T]
    prompt_tokens: int


def states(easy_share: float, stickiness: float, count: int, rng: np.random.Generator) -> Bools:
    """Which of `count` places in a row are easy."""
    anew = rng.random(count) >= stickiness
    anew[0] = True
    since = np.maximum.accumulate(np.where(anew, np.arange(count), 0))
    return (rng.random(count) < easy_share)[since]


def draw_texts(
    plans: Sequence[TextPlan],
    classes: Ints,
    held_out: Bools,
    most: Tier,
    drafting: Drafting,
    vocab_size: int,
    rng: np.random.Generator,
) -> Recording:
    """The recording of texts that are planned; `most` are its limits."""
    outputs = [plan.tokens[plan.prompt_tokens :] for plan in plans]
    nodes = TreeDrawing(most, vocab_size, drafting.decay, drafting.odds_factor).draw(
        np.concatenate([plan.level for plan in plans]),
        np.concatenate([plan.truth for plan in plans]),
        np.concatenate([_targets(output, most.depth) for output in outputs]),
        rng,
    )
    return Recording(
        text_class=classes.astype(np.uint8),
        held_out=held_out,
        prompt_tokens=np.array([plan.prompt_tokens for plan in plans], np.int32),
        ended=np.full(len(plans), NEVER, np.int32),
        first_token=_offsets([len(plan.tokens) for plan in plans]),
        tokens=np.concatenate([plan.tokens for plan in plans]).astype(np.int32),
        first_place=_offsets([len(plan.level) for plan in plans]),
        first_node=_offsets(nodes.pop("size")),
        entropy=nodes.pop("entropy").astype(np.float16),
        divergence=nodes.pop("divergence").astype(np.float16),
        **{**nodes, "log_ratio": nodes["log_ratio"].astype(np.float16)},
    )


def sample_texts(
    drafting: Drafting,
    easy_shares: Sequence[float],
    most: Tier,
    tokens: int,
    rng: np.random.Generator,
) -> Recording:
    """One long text for each share of easy text, to measure acceptance by."""
    plans = [
        TextPlan(
            np.where(
                states(share, drafting.stickiness, tokens - 1, rng), drafting.easy, drafting.hard
            ),
            np.ones(tokens - 1),
            rng.integers(SAMPLE_VOCAB, size=tokens + 1),
            1,
        )
        for share in easy_shares
    ]
    n = len(plans)
    return draw_texts(plans, np.zeros(n, int), np.zeros(n, bool), most, drafting, SAMPLE_VOCAB, rng)


def _targets(output: Ints, depth: int) -> Ints:
    """The output's tokens [T - 1, depth] behind each place, -1 behind its end."""
    padded = np.concatenate([output, np.full(depth, -1)])
    return np.lib.stride_tricks.sliding_window_view(padded[1:], depth)[: len(output) - 1]


def _offsets(counts: Sequence[int] | Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
