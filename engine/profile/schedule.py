"""What is measured: episodes of so many requests with so long prompts, and the trees tried in each.

Sizes are spread about evenly in ratio, since a curve that is known at 8 and 16 tokens needs no
point at 9; around the sizes at which a product changes its kernel they stand close.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.protocol import Limits


class Shape(NamedTuple):
    """A tree that every request of an iteration gets; depth 0 is ordinary decoding."""

    depth: int
    width: int
    nodes: int


class Episode(NamedTuple):
    """Requests that decode together, and the trees of their iterations, in order."""

    requests: int
    prompt_tokens: int
    shapes: tuple[Shape, ...]
    chunk_tokens: int = 0
    """Prompts are read so many tokens at a time, 0: whole."""

    @property
    def output_tokens(self) -> int:
        """Tokens that each request must be allowed, so that none ends and no tree is cut."""
        deepest = max(shape.depth for shape in self.shapes)
        return sum(shape.depth + 1 for shape in self.shapes) + deepest + 2


ORDINARY = Shape(0, 1, 0)
SHAPES = (
    ORDINARY,
    *(Shape(1, 1, 1), Shape(2, 1, 2), Shape(3, 1, 3), Shape(3, 2, 4), Shape(5, 1, 5)),
    *(Shape(3, 4, 7), Shape(6, 2, 11), Shape(4, 4, 15), Shape(4, 4, 19), Shape(5, 4, 23)),
    *(Shape(5, 4, 27), Shape(6, 8, 31), Shape(5, 8, 39), Shape(6, 8, 47), Shape(8, 8, 63)),
)
QUICK_SHAPES = (
    ORDINARY,
    *(Shape(1, 1, 1), Shape(3, 1, 3), Shape(3, 4, 7), Shape(4, 4, 15), Shape(5, 4, 23)),
    *(Shape(6, 8, 31), Shape(8, 8, 63)),
)
# Trees of one request that verify an odd number of tokens: whether an odd row costs what the next
# even one does (`engine.profile.blocks`) is seen here, for the others verify even numbers.
ODD_SHAPES = (
    *(Shape(3, 2, 6), Shape(3, 4, 10), Shape(4, 4, 16), Shape(5, 4, 24), Shape(5, 8, 36)),
    Shape(6, 8, 48),
)
# (share of the slots, share of the context), so that small servers are measured throughout.
BATCHES = (
    *((0.0, 0.04), (0.0, 0.3), (0.0, 0.8), (0.125, 0.15), (0.25, 0.06), (0.25, 0.4)),
    *((0.5, 0.2), (1.0, 0.05), (1.0, 0.15)),
)
QUICK_BATCHES = ((0.0, 0.04), (0.0, 0.4), (0.25, 0.12), (1.0, 0.05))
PROMPTS = (1, 4, 8, 11, 16, 24, 31, 48, 49, 64, 96, 128, 192, 256, 384, 512, 768)
QUICK_PROMPTS = (1, 8, 32, 64, 128, 256)
# (share of the context, tokens of a chunk): prompts read bit by bit, since the cost of a chunk
# grows with what stands before it.
CHUNKS = ((0.2, 8), (0.3, 16), (0.5, 32), (0.8, 64), (0.8, 128), (0.6, 256))
QUICK_CHUNKS = ((0.15, 16), (0.4, 64), (0.6, 128))
# Larger verifications than any useful plan asks for are left to the last slope.
MOST_TOKENS = 400
QUICK_MOST_TOKENS = 160
# A card reads the weights of an 8B model in the time of about two hundred tokens' arithmetic, and
# sixty-four trees are ten times as many: both sides of that knee are wanted.
CARD_MOST_TOKENS = 4096


def schedule(
    limits: Limits,
    context_tokens: int,
    quick: bool,
    generator: np.random.Generator,
    most_tokens: int | None = None,
    stairs: Sequence[int] = (),
) -> list[Episode]:
    """Episodes within the engine's limits; a request has `context_tokens` for prompt and output.

    Every tree of an episode comes twice, at places that `generator` draws. The last episodes are
    single prompts, whole or in chunks, each with an ordinary step and a draft that catches up with
    it. `most_tokens` are verified at once, None: as many as are worth it on a processor. `stairs`
    are token counts behind which steps may jump, such as the sizes of captured graphs: trees of one
    request end there and begin behind.
    """
    batches, prompts = (QUICK_BATCHES, QUICK_PROMPTS) if quick else (BATCHES, PROMPTS)
    if most_tokens is None:
        most_tokens = QUICK_MOST_TOKENS if quick else MOST_TOKENS
    trees = dict.fromkeys((*(QUICK_SHAPES if quick else SHAPES), *_around(stairs, limits)))
    episodes = []
    for slots_share, context_share in batches:
        requests = max(1, round(slots_share * limits.slots))
        shapes = [
            shape
            for shape in (*trees, *(ODD_SHAPES if requests == 1 and not quick else ()))
            if _fits(shape, limits) and requests * (shape.nodes + 1) <= max(most_tokens, requests)
        ]
        order = [shapes[i] for _ in range(2) for i in generator.permutation(len(shapes))]
        episode = Episode(requests, max(2, int(context_share * context_tokens)), tuple(order))
        episodes.append(_shortened(episode, context_tokens))
    catching_up = (ORDINARY, Shape(1, 1, 1))
    alone = [Episode(1, n, catching_up) for n in prompts]
    for share, chunk in QUICK_CHUNKS if quick else CHUNKS:
        n = max(2, int(share * context_tokens))
        alone.append(Episode(1, n, catching_up, min(chunk, n // 2)))
    alone = [e for e in alone if e.prompt_tokens + e.output_tokens <= context_tokens]
    return list(dict.fromkeys([*episodes, *alone]))


def _around(stairs: Sequence[int], limits: Limits) -> list[Shape]:
    """Trees that fill a stair with their root, and trees of a node more, as shallow as they can."""
    shapes = []
    for nodes in sorted({n for stair in stairs for n in (stair - 1, stair)}):
        for depth in range(1, limits.max_depth + 1):
            width = limits.max_width if depth > 1 else min(nodes, limits.max_width)
            if 0 < nodes <= width + (depth - 1) * width**2:
                shapes.append(Shape(depth, width, nodes))
                break
    return shapes


def _fits(shape: Shape, limits: Limits) -> bool:
    return (
        shape.depth <= limits.max_depth
        and shape.width <= limits.max_width
        and shape.nodes <= limits.max_nodes
    )


def _shortened(episode: Episode, context_tokens: int) -> Episode:
    """The episode with so few trees, and then so short a prompt, that it fits in the context."""
    shapes = list(episode.shapes)
    while episode.output_tokens > context_tokens // 2 and len(shapes) > 1:
        shapes.remove(max(shapes, key=lambda shape: shape.depth))
        episode = episode._replace(shapes=tuple(shapes))
    longest = max(1, context_tokens - episode.output_tokens)
    return episode._replace(prompt_tokens=min(episode.prompt_tokens, longest))
