"""The target's pass over a text that is already written: its features and what it would say next.

Ordinary decoding makes the same numbers token by token; here a text's tokens run together, in
chunks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.backends.flat import FlatBatch
from engine.kernels.layout import lay_out_rows
from engine.protocol import Ints
from models.decoder import Decoder

CHUNK_TOKENS = 128


class Reading(NamedTuple):
    """What the target makes of a text of L tokens, P of them the prompt's."""

    features: Tensor  # [L - 1, 3h] at the layers that the drafter asks for
    logits: Tensor  # [L - 1 - P, V] behind every output token but the last


class ForcedReader:
    """A target and a cache for one text at a time."""

    def __init__(self, decoder: Decoder, capacity: int, capture: tuple[int, ...]) -> None:
        """`capacity` is the longest text in tokens, `capture` the layers of the features."""
        self.decoder, self.capture = decoder, capture
        self.cache = decoder.new_cache(1, capacity)
        self.flat = FlatBatch(CHUNK_TOKENS)

    @torch.inference_mode()
    def read(self, text: Ints, prompt_tokens: int) -> Reading:
        """Run all but the last token of `text` [L]."""
        features, logits = [], []
        for first in range(0, len(text) - 1, CHUNK_TOKENS):
            end = min(first + CHUNK_TOKENS, len(text) - 1)
            mask = self.flat.mask(1, end - first, end)
            lay_out_rows(np.array([first]), np.array([end]), text[None], 0, self.flat.rows, mask)
            batch = self.flat.batch(end - first, mask)
            hidden, captured = self.decoder.forward(batch, self.cache, self.capture)
            assert captured is not None, "the drafter asks for features of no layer"
            features.append(captured)
            if end > prompt_tokens:
                logits.append(self.decoder.logits(hidden[max(prompt_tokens - first, 0) :]))
        return Reading(torch.cat(features), torch.cat(logits))
