"""Where two texts of the same target first differ, and whether rounding explains it.

A pass over another number of tokens adds in another order, so two tokens that are all but equally
good may change places. How close they were is looked up by reading prompt and common text once
more, in one plain pass: no engine, no tree (ALGORITHMS.md §3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.sampling.noise import gumbel, stream, uniform
from engine.sampling.params import SamplingParams
from models.decoder import Decoder
from models.kv_cache import TokenBatch

CLOSE = 1e-4
"""Between the scores of two tokens in float32: under it a departure is rounding."""


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens up to the first that differs, or to the end of the shorter."""
    shorter = min(len(one), len(other))
    differ = np.flatnonzero(np.asarray(one[:shorter]) != np.asarray(other[:shorter]))
    return int(differ[0]) if len(differ) else shorter


def top_gap(decoder: Decoder, text: list[int]) -> float:
    """Between the two largest logits for the token after `text`, read in one pass."""
    best = logits_after(decoder, text).double().topk(2).values
    return float(best[0] - best[1])


def score_gap(
    decoder: Decoder,
    prompt: list[int],
    output: Sequence[int],
    tokens: tuple[int, int],
    params: SamplingParams,
    seed: int,
) -> float:
    """Between the scores of two tokens as the one after prompt and output, by keyed sampling.

    A score is the logit plus temperature times the noise of seed, position and token. Penalties and
    filters are left out: ask for neither.
    """
    logits = logits_after(decoder, [*prompt, *output]).double()
    state = np.uint64(stream(seed, len(output)))

    def score(token: int) -> float:
        noise = gumbel(uniform(state, token)) if params.temperature > 0 else 0.0
        return float(logits[token]) + params.temperature * noise

    one, other = tokens
    return abs(score(one) - score(other))


@torch.inference_mode()
def logits_after(decoder: Decoder, text: list[int]) -> Tensor:
    """Logits [vocabulary] after a text that is read whole."""
    batch = TokenBatch.whole(torch.tensor(text))
    hidden, _ = decoder.forward(batch, decoder.new_cache(1, len(text)))
    return decoder.logits(hidden[-1:])[0].float().cpu()
