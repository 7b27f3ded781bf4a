"""To which sizes passes are rounded up, so that a few CUDA graphs serve all of them.

A graph has fixed shapes: so many requests, so many tokens. What fills a batch up to them is
`models.paged_batch.pad_pages`'s.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.errors import UserError

Refusal = Literal["prompt", "too large"]
"""Why no graph serves a pass."""
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# Between two powers of two there is a step more, so that no pass is padded by much more than half;
# 80 takes the largest tree of one request.
TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024)
TREE_TOKENS = 65  # the largest tree, 64 nodes, and its root


class Tier(NamedTuple):
    """The shapes of a graph; the request that takes what is missing comes on top."""

    requests: int
    tokens: int


@dataclass(frozen=True)
class GraphTiers:
    """The table of sizes: every number of requests with every number of tokens from there on."""

    requests: tuple[int, ...] = REQUESTS
    tokens: tuple[int, ...] = TOKENS
    tree_tokens: int = TREE_TOKENS
    """Tokens a request up to which a pass is no prompt; prompts are long and run as they are."""

    def __post_init__(self) -> None:
        """Raises UserError for sizes that do not rise from 1 on, or tokens that end too early."""
        for name, sizes in (("requests", self.requests), ("tokens", self.tokens)):
            if not sizes or sizes[0] < 1 or list(sizes) != sorted(set(sizes)):
                raise UserError(
                    f"graph tiers: {name} are {sizes}; expected whole numbers from 1 on, rising"
                )
        if self.tokens[-1] < self.requests[-1]:
            raise UserError(
                f"graph tiers: at most {self.tokens[-1]} tokens for {self.requests[-1]} requests; "
                "expected a token or more for each"
            )

    def of(self, sizes: NDArray[np.int64]) -> Tier | Refusal:
        """The tier of requests with so many tokens each, [R] of at least 1, or why there is none.

        A tier has a token or more for each of its requests: FlashInfer's planning of a graph
        (`PrefillSplitQOKVIndptr` of 0.6.18 and 0.7.4) has tokens - requests + 1 without a sign.
        """
        if sizes.max() > self.tree_tokens:
            return "prompt"
        if len(sizes) > self.requests[-1] or sizes.sum() > self.tokens[-1]:
            return "too large"
        return self._tier(len(sizes), int(sizes.sum()))

    def reach(self, requests: int, tokens: int, more: int = 0) -> list[Tier]:
        """Tiers of all passes of up to `requests` requests with 1 to `tokens` tokens each.

        All their tokens are at least `more` more than they are. Sorted by requests, then tokens;
        passes that no graph serves are left out.
        """
        tokens = min(tokens, self.tree_tokens)
        found: set[Tier] = set()
        for count in range(1, min(requests, self.requests[-1]) + 1):
            least, most = count + more, min(count * tokens, self.tokens[-1])
            if least <= most:
                # Every tier between the two ends has its own size in it.
                sizes = (size for size in self.tokens if least <= size <= most)
                found |= {self._tier(count, total) for total in (least, *sizes, most)}
        return sorted(found)

    def _tier(self, count: int, total: int) -> Tier:
        """The tier of `count` requests with `total` tokens, neither beyond the last."""
        requests = self.requests[bisect_left(self.requests, count)]
        return Tier(requests, self.tokens[bisect_left(self.tokens, max(total, requests))])
