"""What another number format alone does to the text: the floor under what a margin gives up.

Two formats and not two batch sizes in one: in float32 another order of adding changes a token in a
hundred thousand, so that floor would be nought, while bfloat16 is what servers run and what "as
good as lossless" is usually measured against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import torch

from engine.protocol import Limits
from engine.serving import LiveServer
from eval.contenders import named
from eval.lossless.same_text import HOW, Compared, compared, sampling_of
from eval.lossless.serving import Texts, requests_of, serve
from models.decoder import Decoder
from models.registry import resolve

SLOTS = 8
ORDINARY = "autoregressive"


@dataclass(frozen=True)
class Floor:
    """Ordinary decoding in another format, text by text beside that of the run."""

    dtype: str
    texts: tuple[Compared, ...]


def floor_of(
    server: LiveServer, prompts: Sequence[list[int]], tokens: int, ordinary: Mapping[str, Texts]
) -> Floor:
    """The same prompts under the same seeds; loads the target once more, which takes seconds."""
    is_rounded = server.decoder.dtype == torch.bfloat16
    dtype = torch.float32 if is_rounded else torch.bfloat16
    controller = named([ORDINARY])[ORDINARY]
    with closing(in_format(server, dtype, SLOTS)) as other:
        under = {
            how: serve(
                other,
                ORDINARY,
                controller,
                requests_of(prompts, tokens, sampling_of(how, len(prompts))),
            )
            for how in HOW
        }
    texts = compared(server, prompts, ordinary, under)
    return Floor(str(dtype).removeprefix("torch."), tuple(texts))


def in_format(server: LiveServer, dtype: torch.dtype, slots: int) -> LiveServer:
    """The same target in another format, without a draft network: ordinary decoding has no use."""
    decoder = Decoder.from_folder(resolve(server.name), dtype, server.device)
    # No tree is ever verified, so there need be room for none.
    limits = Limits(slots=slots, max_depth=1, max_width=1, max_nodes=1)
    capacity = server.settings.capacity_tokens
    return LiveServer(decoder, None, server.tokenizer, limits, capacity, server.name)
