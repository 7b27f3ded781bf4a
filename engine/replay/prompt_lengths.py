"""A recording with prompts of other lengths: acceptance stays, what reading costs changes."""

from __future__ import annotations

import numpy as np

from engine.protocol import Ints
from engine.replay.recording import Recording


def with_prompts(recording: Recording, lengths: Ints) -> Recording:
    """The recording with prompts of so many made-up tokens [N] in place of its own."""
    parts = []
    for text, length in enumerate(lengths.tolist()):
        start, end = recording.first_token[text : text + 2].tolist()
        output = recording.tokens[start + int(recording.prompt_tokens[text]) : end]
        parts.append(np.concatenate([np.ones(length, np.int32), output]))
    ends = np.cumsum([len(part) for part in parts])
    return recording._replace(
        prompt_tokens=lengths.astype(np.int32),
        first_token=np.concatenate([[0], ends]).astype(np.int64),
        tokens=np.concatenate(parts),
    )
