"""`engine.kernels.step_rows` as said: by draft step, who takes part and with how much."""

from __future__ import annotations

from collections.abc import Sequence


def step_rows(
    decoding: Sequence[bool],
    depth: Sequence[int],
    width: Sequence[int],
    nodes: Sequence[int],
    context_tokens: Sequence[int],
    undrafted_tokens: Sequence[int],
) -> tuple[int, int, int, list[int]]:
    """Nodes kept, requests that draft, their context, rows of their draft steps."""
    slots = range(len(decoding))
    drafting = [s for s in slots if decoding[s] and depth[s] > 0 and nodes[s] > 0]
    beams = {s: [1] + [width[s]] * (depth[s] - 1) for s in drafting}  # that grow, by layer
    kept = sum(min(nodes[s], sum(beam * width[s] for beam in beams[s])) for s in drafting)
    rows = []
    for step in range(max((depth[s] for s in drafting), default=0)):
        taking_part = [s for s in drafting if depth[s] > step]
        rows.append(sum(undrafted_tokens[s] if step == 0 else width[s] for s in taking_part))
    return kept, len(drafting), sum(context_tokens[s] for s in drafting), rows
