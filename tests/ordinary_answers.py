"""What ordinary decoding answers: no engine, no cache, no tree, all of a text anew for every token.

Many texts go through the decoder side by side, since a pass over tiny networks costs the same for
one as for all. Tokens are chosen by the twins of penalty, filters and keyed noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engine.sampling.params import SamplingParams
from models.decoder import Decoder
from models.kv_cache import TokenBatch
from tests.twins import draw as twin
from tests.twins.penalise import penalise

Asked = tuple[tuple[int, ...], SamplingParams]  # a prompt, and how its answer is sampled


@torch.inference_mode()
def ordinary_answers(
    decoder: Decoder, asked: Sequence[Asked], count: int
) -> dict[Asked, list[int]]:
    """`count` tokens for each; sampled ones must have a seed."""
    texts = [list(prompt) for prompt, _ in asked]
    for position in range(count):
        for text, levels, (_, params) in zip(texts, _levels(decoder, texts), asked, strict=True):
            levels = penalise(levels, set(text), params.repetition_penalty)
            text.append(twin.draw(levels, params, params.seed or 0, position))
    return {one: text[len(one[0]) :] for one, text in zip(asked, texts, strict=True)}


def _levels(decoder: Decoder, texts: Sequence[Sequence[int]]) -> list[list[float]]:
    """The logits after each text."""
    lengths = np.array([len(text) for text in texts])
    longest = int(lengths.max())
    slots = torch.from_numpy(np.repeat(np.arange(len(texts)), lengths))
    rows = torch.cat([torch.arange(length) for length in lengths.tolist()])
    mask = torch.ones(len(texts), longest, longest, dtype=torch.bool).tril()
    tokens = torch.tensor([token for text in texts for token in text])
    batch = TokenBatch(tokens, rows, slots, rows, rows, mask, 0, len(texts))
    hidden, _ = decoder.forward(batch, decoder.new_cache(len(texts), longest))
    last = torch.from_numpy(np.cumsum(lengths) - 1)
    levels: list[list[float]] = decoder.logits(hidden[last]).tolist()
    return levels
