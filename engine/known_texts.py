"""Texts that are settled before they are served, by request, as arrays that kernels read.

A forced backend makes the target say them (`engine.backends.forced`), a steered drafter aims at
them (`engine.drafters.steered`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.errors import UserError
from engine.protocol import Ints
from engine.request import Request


class KnownTexts:
    """Q texts of prompt and answer together; position i of a text is the request's i-th token."""

    def __init__(self, texts: Mapping[int, Sequence[int]] | None = None) -> None:
        """`texts` are token ids by request id; None: nobody's text is known."""
        known = texts or {}
        self.ids = np.array(sorted(known), np.int64)  # [Q] ascending
        self.length = np.array([len(known[i]) for i in sorted(known)], np.int64)  # [Q]
        self.tokens = np.full((len(known), int(self.length.max(initial=1))), -1, np.int64)
        for row, request in enumerate(self.ids.tolist()):
            self.tokens[row, : len(known[request])] = known[request]

    @classmethod
    def of(cls, requests: Sequence[Request], answers: Sequence[Sequence[int]]) -> KnownTexts:
        """Each request's prompt and its answer; raises UserError unless there is one for each."""
        if len(requests) != len(answers):
            raise UserError(
                f"{len(answers)} answers were given for {len(requests)} requests; expected one each"
            )
        pairs = zip(requests, answers, strict=True)
        return cls({request.id: [*request.prompt, *answer] for request, answer in pairs})

    def rows(self, request: Ints) -> Ints:
        """Row of each request's text, -1 for one whose text is not known; any shape."""
        if not len(self.ids):
            return np.full_like(request, -1)
        row = np.minimum(np.searchsorted(self.ids, request), len(self.ids) - 1)
        return np.where(self.ids[row] == request, row, -1)
