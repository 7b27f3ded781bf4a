"""Twin of `engine.replay.synthetic.children.draw_children` for one node."""

from __future__ import annotations

from collections.abc import Sequence

LEAST = 1e-6


def shares(best: float, siblings: Sequence[float]) -> list[float]:
    """Probabilities of the children, best first."""
    found = [max(best, LEAST)]
    for share in siblings:
        found.append(min(found[-1], (1.0 - sum(found)) * share))
    return found


def draw_children(
    mean: float,
    odds_factor: float,
    siblings: Sequence[float],
    top: float,
    rank: float,
    target: int,
    on_path: bool,
    vocab_size: int,
) -> tuple[list[int], list[float]]:
    """Tokens of one node's children and the probabilities that are shown of them."""
    true = shares(top ** ((1.0 - mean) / mean), siblings)
    tokens = [(max(target, 0) + 1 + k) % vocab_size for k in range(len(true))]
    if on_path and target >= 0:
        for k in range(len(true)):
            if rank < sum(true[: k + 1]):
                tokens[k] = target
                break
    return tokens, shares(top ** ((1.0 - mean) / (mean * odds_factor)), siblings)
