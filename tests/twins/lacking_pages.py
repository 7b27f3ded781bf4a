"""`engine.kernels.lacking_pages` in plain Python."""

from __future__ import annotations

from engine.protocol import Bools, Ints


def lacking_pages(nodes: Ints, contexts: Ints, owned: Ints, page_size: int, decoding: Bools) -> int:
    """Slot by slot, page by page."""
    total = 0
    for tree, context, held, on in zip(
        nodes.tolist(), contexts.tolist(), owned.tolist(), decoding.tolist(), strict=True
    ):
        room = held * page_size
        while on and room < context + 1 + tree:
            room, total = room + page_size, total + 1
    return total
