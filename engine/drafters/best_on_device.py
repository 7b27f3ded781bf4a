"""`engine.kernels.best` for logits on a card: the search is done there, the host reads the answer.

One copy brings all of it. The host waits with it for one draft step, or for all of them where the
drafter has drafted ahead (`engine.drafters.network`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.backends.protocol import Children
from engine.protocol import Ints

MAGNITUDE = 0x7FFFFFFF  # of the 32 bits of a float
SMALLEST = torch.finfo(torch.float32).tiny


def read_best_children(
    logits: Tensor, ids: Tensor | None, slots: Ints, places: Ints, to: Children
) -> bool:
    """Write the best children by float32 logits [T, V] at (slots [T], places [T]) of `to`.

    As `best_children` does: best first, of equals the lower index, probabilities of the softmax
    over V; `ids` [V], on the logits' device, are the target's where the drafter numbers tokens
    otherwise. False, and nothing written, if some logit is not finite.
    """
    token, probability = to.token[0], to.probability[0]
    most = min(token.shape[2], logits.shape[1])
    read = best_there(logits, ids, most).cpu().numpy()  # the one wait
    found, p = read[:, :most], read[:, most:]
    if (p < 0).any():
        return False
    token[slots, places] = found[:, -1:]  # behind the last child, where probability is 0
    token[slots, places, :most] = found
    probability[slots, places] = 0.0
    probability[slots, places, :most] = p
    return True


def best_there(logits: Tensor, ids: Tensor | None, most: int) -> Tensor:
    """The `most` best tokens, then their probabilities, in float64 [T, 2 most] by the logits.

    Float64 holds every token number exactly. In rows whose logits are not all finite the
    probabilities are -1, and tokens are tokens still.
    """
    scores = logits + 0.0  # -0.0, which is 0.0's equal, becomes it
    # Positive floats order as their bits do; a negative one's magnitude has to be turned round.
    bits = scores.view(torch.int32)
    ordered = torch.where(bits < 0, bits ^ MAGNITUDE, bits).long()
    # `topk` promises no order among equals, so there are none: the lower index is the larger key.
    behind = torch.arange(logits.shape[1] - 1, -1, -1, device=logits.device)
    best = ((ordered << 32) | behind).topk(most, dim=-1).indices
    log_sum = scores.logsumexp(-1, keepdim=True)
    # A child is never of probability 0: that says "no child".
    p = (scores.gather(1, best) - log_sum).exp().clamp(SMALLEST, 1.0)
    finite = scores.isfinite().all(-1, keepdim=True)
    tokens = best if ids is None else ids[best]
    return torch.cat((tokens.double(), torch.where(finite, p, -1.0).double()), dim=-1)
