"""The model of acceptance: how sure a drafter is of its guesses, and how often it is right.

At output token t of a text the drafting is easy or hard. The state z(t) is sticky along the text:

    z(t + 1) = z(t) with probability λ (`stickiness`), else drawn anew: easy with probability w,

where w (`easy_share`) hangs on the kind of text. A tree rooted at t is drafted in the state z(t) of
its root to its last leaf. The best child of a node at depth d - 1 has the draft probability

    q1 = U^((1 - m) / m), U uniform, so that E[q1] = m = level(z) · ρ^(d - 1) · φ

with ρ (`decay`) what a step of drafting costs in acceptance and φ the factor of drift, and the next
ones take c_2, c_3, … (`SIBLINGS`) of what is left, no more than the sibling before. The text's own
token is child k with probability q_k, and none of them with what remains. All nodes of a place draw
alike, on the text's path or not, so P(node is accepted | all q) is its path probability: the trees
are calibrated.

What the drafter *shows* is U^((1 - m) / (m·γ)) in place of q1, and siblings by the same rule: it
takes its odds of being right, m to 1 - m, for γ (`odds_factor`) times what they are. At γ = 1 it is
calibrated, above overconfident, below underconfident.

The state belongs to the tree and not to the guessed token: were it the token's, serving would
linger in hard stretches, the more the longer the chain is, and AdaServe's figures would be out of
reach (tests/test_synthetic_fit.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.protocol import Floats

SIBLINGS = (0.264, 0.174, 0.132, 0.099, 0.099, 0.099, 0.099)
"""c_2 to c_8: share of the remaining probability that the next best child takes. Ranks 2 to 5 are
the mean of the first Medusa heads of Vicuna 7B and 13B (shared/data/speculation/medusa_heads.csv,
Apache-2.0: accuracy at top k over what was left at top k - 1); deeper ranks repeat the fifth."""
LEAST_MEAN, MOST_MEAN = 0.01, 0.9995


class Tier(NamedTuple):
    """A fixed tree: beam of `width` for `depth` steps, then the best `nodes`, root not counted."""

    depth: int
    width: int
    nodes: int


class Drafting(NamedTuple):
    """A drafter's parameters, the same for every kind of text."""

    easy: float  # mean of q1 at depth 1 in the easy state
    hard: float  # and in the hard one
    stickiness: float  # λ
    decay: float  # ρ
    odds_factor: float = 1.0  # γ


def top_mean(level: Floats, decay: float, depth: int) -> Floats:
    """m at a depth, for levels that drift is part of; kept within what a probability can be."""
    return np.clip(level * decay ** (depth - 1), LEAST_MEAN, MOST_MEAN)


def chain_tokens(drafting: Drafting, easy_share: Floats, depth: int) -> Floats:
    """Tokens an iteration emits in the long run, bonus included, for shares [n] of easy text.

    Exact for chains. An iteration that accepts a drafts begins the next one a + 1 tokens on, so the
    states in which iterations begin form a Markov chain of their own; the mean is over its
    stationary law: whoever advances slowly in hard text counts more iterations there.
    """
    share = np.asarray(easy_share, float)
    levels = np.array([drafting.easy, drafting.hard])
    alive, accepted = np.ones(2), np.zeros(2)
    stays = np.zeros(2)  # E[λ^tokens]: the chance that no new state was drawn
    for d in range(1, depth + 1):
        mean = top_mean(levels, drafting.decay, d)
        stays += alive * (1.0 - mean) * drafting.stickiness**d
        alive = alive * mean
        accepted += alive
    stays += alive * drafting.stickiness ** (depth + 1)
    to_hard, to_easy = (1.0 - stays[0]) * (1.0 - share), (1.0 - stays[1]) * share
    begins_easy = to_easy / (to_easy + to_hard)
    return 1.0 + begins_easy * accepted[0] + (1.0 - begins_easy) * accepted[1]
