"""Twin of `engine.kernels.known_text.force_choices` for one slot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def force_choices(
    text: Sequence[int],
    context: int,
    depth: Sequence[int],
    kept: Collection[int],
    root_token: int,
    node_token: Mapping[int, int],
) -> tuple[int, dict[int, int]]:
    """What the target says after the root and after each kept node, behind the text its own."""
    said = dict(enumerate(text))
    nodes = {node: said.get(context + depth[node] + 1, node_token[node]) for node in kept}
    return said.get(context + 1, root_token), nodes
