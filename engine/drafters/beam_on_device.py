"""`engine.kernels.beam.grow` in torch: the next beam is chosen where the children were scored.

It chooses the same nodes in the same order to the last bit, so that the host may grow the trees
from the same children later and finds its own beams to be those that the device drafted on. All
shapes are known beforehand: a beam that is short of nodes has dead places, which see nothing of
other drafts and are seen by none.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engine.protocol import Limits


class BeamThere(NamedTuple):
    """The nodes that the drafter expands next [S, P], on its device; dead places hold zeros."""

    live: Tensor  # [S, P] bool
    token: Tensor  # [S, P]
    probability: Tensor  # [S, P] float64, product from the root
    parent_row: Tensor  # [S, P] place of the parent in the previous beam
    ancestors: Tensor  # [S, P, D · W] bool, draft rows that a node sees: (step - 1) · W + place


def grow_there(
    step: int,
    width: Tensor,
    places: int,
    token: Tensor,
    probability: Tensor,
    above: BeamThere | None,
    limits: Limits,
) -> BeamThere:
    """The beam of draft step `step`, by the children [S, P, C] of the one `above`.

    Slots may have width [S] nodes in it, 0 where one drafts no further, and the largest has room
    for `places`. Children stand best first with float64 probabilities, 0 for "no child"; those of
    step 1 are the roots', P is 1 and there is no beam above.
    """
    slots, _, children = probability.shape
    device = probability.device
    there = torch.arange(children, device=device) < width[:, None, None]
    # Behind "no child" nothing counts; a NaN is no child either.
    there = there & (probability > 0).cumprod(-1).bool()
    path = probability
    if above is not None:
        there = there & above.live[:, :, None]
        path = above.probability[:, :, None] * probability
    # A path that has rounded to 0 is still one. Of equals the first candidate comes first.
    score = torch.where(there, path, -1.0).flatten(1)
    score, order = (
        found[:, :places] for found in torch.sort(score, dim=1, descending=True, stable=True)
    )
    place = torch.arange(places, device=device)
    live = (score >= 0) & (place < width[:, None])
    parent = torch.where(live, order // children, 0)
    own = (step - 1) * limits.max_width + place
    draft_rows = torch.arange(limits.max_depth * limits.max_width, device=device)
    ancestors = (draft_rows == own[:, None]).expand(slots, -1, -1)
    if above is not None:
        inherited = above.ancestors.gather(1, parent[:, :, None].expand_as(ancestors))
        ancestors = ancestors | (inherited & live[:, :, None])
    return BeamThere(
        live=live,
        token=torch.where(live, token.flatten(1).gather(1, order), 0),
        probability=torch.where(live, score, 0.0),
        parent_row=parent,
        ancestors=ancestors,
    )


def beam_mask(ancestors: Tensor, committed: Tensor, length: int) -> Tensor:
    """What beam nodes [S, P] see of their slots' rows: bool [S, P, length].

    All of the `committed` [S] rows in front, and of the draft rows behind them their `ancestors`
    [S, P, D · W].
    """
    behind = torch.arange(length, device=committed.device) - committed[:, None]  # [S, L]
    draft_row = behind.clamp(0, ancestors.shape[2] - 1)[:, None].expand(-1, ancestors.shape[1], -1)
    seen = ancestors.gather(2, draft_row)
    return (behind < 0)[:, None] | (seen & (behind < ancestors.shape[2])[:, None])


def known_ancestors(step: int, places: int, limits: Limits) -> Tensor | None:
    """Ancestors [places, D · W] of a beam of which the host knows them beforehand, else None.

    That is a first beam, of the roots' children, and one of chains: `places` are counted by width,
    whether or not there were so many children, so a single one is a chain's. It matters to
    attention that is faster without a mask: only these can be causal, since siblings do not see
    each other.
    """
    ancestors = torch.zeros(places, limits.max_depth * limits.max_width, dtype=torch.bool)
    if step == 1:
        ancestors.fill_diagonal_(True)
    elif places == 1:
        ancestors[0, : step * limits.max_width : limits.max_width] = True
    else:
        return None
    return ancestors
