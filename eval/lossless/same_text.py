"""The same text whatever the tree: answers under a controller beside those of ordinary decoding.

Greedy and by keyed sampling, where a request's text depends on its seed and on nothing else. A
lossless controller may depart only where the two tokens were as good as equal; one with a margin
gives up what it gives up, which is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from engine.sampling.params import SamplingParams
from engine.serving import LiveServer
from eval.lossless.departures import CLOSE, common, score_gap
from eval.lossless.serving import Texts

HOW = {"greedy": SamplingParams(), "sampled": SamplingParams(temperature=1.0)}


@dataclass(frozen=True)
class Compared:
    """One text beside ordinary decoding's."""

    how: str
    """greedy or sampled."""
    prompt: int
    tokens: int
    """Compared: up to the first that differs, that one counted."""
    equal: float
    """Share of all places at which both say the same."""
    gap: float | None = None
    """Between the two tokens' scores where the texts part; None: they are the same."""

    @property
    def departs(self) -> bool:
        """Whether the texts differ anywhere."""
        return self.gap is not None


def sampling_of(how: str, count: int) -> list[SamplingParams]:
    """A seed a request, the same for every controller."""
    base = HOW[how]
    return [SamplingParams(temperature=base.temperature, seed=i) for i in range(count)]


def compared(
    server: LiveServer,
    prompts: Sequence[list[int]],
    ordinary: Mapping[str, Texts],
    under: Mapping[str, Texts],
) -> list[Compared]:
    """Every text under a controller beside the ordinary one, by how it was drawn."""
    found = []
    for how, texts in under.items():
        pairs = zip(prompts, ordinary[how].outputs, texts.outputs, strict=True)
        for i, (prompt, one, other) in enumerate(pairs):
            same = common(one, other)
            length = min(len(one), len(other))
            equal = sum(a == b for a, b in zip(one, other, strict=False)) / max(length, 1)
            if same == length:
                found.append(Compared(how, i, length, equal))
                continue
            tokens = one[same], other[same]
            params = HOW[how]
            gap = score_gap(server.decoder, prompt, one[:same], tokens, params, seed=i)
            found.append(Compared(how, i, same + 1, equal, gap))
    return found


def is_explained(one: Compared, dtype: torch.dtype) -> bool:
    """Whether a departure is rounding; 16 bits round so often that none is held against anybody."""
    return one.gap is None or dtype in (torch.bfloat16, torch.float16) or one.gap < CLOSE
