"""A place of a recording read as replay must read it, in plain Python: one scan of its nodes."""

from __future__ import annotations

from engine.replay.recording import ROOT, Recording


def scanned_length(r: Recording, text: int, root: int, depth: int, width: int, nodes: int) -> int:
    """Tokens that the tree of a plan emits behind output token `root`, bonus included."""
    place = int(r.first_place[text]) + root
    first, end = r.first_node[place : place + 2].tolist()
    start = int(r.first_token[text] + r.prompt_tokens[text])
    output = r.tokens[start : int(r.first_token[text + 1])].tolist()
    depth = min(depth, len(output) - 2 - root)  # no deeper than may still be emitted
    taken, path = 0, {ROOT: 0}  # nodes of the text, and how deep they are
    for i in range(end - first):
        node = first + i
        if r.depth[node] > depth or not r.widths[node] >> (width - 1) & 1:
            continue
        if taken == nodes:
            break
        taken += 1
        above, at = int(r.parent[node]), root + int(r.depth[node])
        if above in path and at < len(output) and int(r.token[node]) == output[at]:
            path[i] = int(r.depth[node])
    return min(max(path.values()) + 1, len(output) - 1 - root)
