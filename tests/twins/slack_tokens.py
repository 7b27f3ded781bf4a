"""Twin of `engine.kernels.view.slack_tokens` for one slot."""

from __future__ import annotations


def slack_tokens(
    decoding: bool, clock_s: float, first_token_s: float, emitted: int, objective_s: float
) -> tuple[float, float]:
    """Slack in tokens (emitted after the first, minus those due by now), and the decode time."""
    if not decoding:
        return 0.0, 0.0
    spent_s = clock_s - first_token_s
    return emitted - 1 - spent_s / objective_s, spent_s  # x / inf is 0
