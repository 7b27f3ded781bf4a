"""Two numbers on a drafter's distribution: its entropy, and its divergence from the target's.

Both are in nats and of the distributions as the networks give them: no temperature, penalty or
filter of a request is in them. A drafter with a vocabulary of its own gives no probability to the
target's other tokens, so that the divergence over all of them would be infinite. It is therefore
taken over the draft vocabulary, the target's distribution restricted to it and made to sum to 1:
what the drafter misses though it could know better. Where both have the same vocabulary that is
the ordinary KL(target ‖ drafter).

DSDE steers by the divergence of verified positions (Yang et al. 2025, arXiv 2509.01083). What we
have of it does not say which way round it is taken; this way is the cross-entropy that heads are
trained by, less the target's own entropy.
"""

from __future__ import annotations

import torch
from torch import Tensor


def entropy_nats(logits: Tensor) -> Tensor:
    """Entropy [n] of the softmax over logits [n, V]."""
    return torch.special.entr(torch.softmax(logits, dim=-1)).sum(-1)


def divergence_nats(target: Tensor, draft: Tensor, ids: Tensor | None) -> Tensor:
    """KL(target ‖ drafter) [n], at least 0, from logits [n, V] and [n, V_draft].

    `ids` [V_draft] are the target's numbers of the drafter's tokens, None where they are the same.
    NaN where logits are.
    """
    known = target if ids is None else target[:, ids]
    wanted, said = torch.log_softmax(known, dim=-1), torch.log_softmax(draft, dim=-1)
    return (wanted.exp() * (wanted - said)).sum(-1).clamp(min=0.0)  # rounding can fall below
