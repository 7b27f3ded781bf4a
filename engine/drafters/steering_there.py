"""`engine.kernels.known_text.steer_children` in torch, where beams stay on the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.drafters.beam_on_device import BeamThere
from engine.known_texts import KnownTexts
from engine.protocol import Ints
from engine.state import SlotState
from models.upload import upload_rows


class SteeringThere:
    """One draft, steered: called with the children of every step, from the roots' on."""

    def __init__(
        self, texts: KnownTexts, ranks: Ints, vocab: int, slots: SlotState, device: torch.device
    ) -> None:
        """`ranks` [D, S] say which child the right token shall be, 0 the best; -1: none."""
        deepest, n = ranks.shape
        self.vocab = vocab
        right = _following(texts, slots, deepest)
        rows = upload_rows((*right.T, *ranks, np.arange(n)), device)
        self.right, self.ranks = rows[: deepest + 1], rows[deepest + 1 : -1]  # -1: no such token
        self.slots = rows[-1]
        self.place = torch.zeros_like(self.slots)  # in the beam, of the node that is the text's
        self.on_path = self.place == 0

    def __call__(self, step: int, children: Tensor, beam: BeamThere | None) -> None:
        """Change tokens of children [S, P, 2 C], tokens and then probabilities, of the `beam`."""
        if beam is not None:
            stands = (beam.token == self.right[step - 1][:, None]) & self.on_path[:, None]
            stands &= beam.live & (beam.parent_row == self.place[:, None])
            self.on_path, self.place = stands.any(1), stands.long().argmax(1)
        most = children.shape[2] // 2
        siblings, chances = children[self.slots, self.place].split(most, dim=1)
        right, rank = self.right[step], self.ranks[step - 1]
        there = chances > 0
        found = there & (siblings == right[:, None])
        last = (there.sum(1) - 1).clamp(min=0)
        to = torch.minimum(rank.clamp(min=0), last)[:, None]
        at_rank = torch.where(found, siblings.gather(1, to), siblings).scatter(
            1, to, right[:, None].to(siblings.dtype)
        )
        # Where it is to be nowhere, the next token that is no sibling takes its place.
        column = torch.arange(most, device=children.device)
        others = (right[:, None] + 1 + column) % self.vocab
        taken = (there[:, None] & (others[:, :, None] == siblings[:, None])).any(2)
        other = others.gather(1, taken.cumprod(1).sum(1, keepdim=True).clamp(max=most - 1))
        nowhere = torch.where(found, other.to(siblings.dtype), siblings)
        steered = torch.where(rank[:, None] >= 0, at_rank, nowhere)
        changes = self.on_path & (right >= 0) & there[:, 0]
        children[self.slots, self.place, :most] = torch.where(changes[:, None], steered, siblings)


def _following(texts: KnownTexts, slots: SlotState, deepest: int) -> Ints:
    """The texts' tokens [S, deepest + 1] from the roots on, -1 where there is none."""
    row = texts.rows(slots.request)[0][:, None]
    if not len(texts.length):
        return row.repeat(deepest + 1, axis=1)
    at = slots.context[0][:, None] + np.arange(deepest + 1)
    known = (row >= 0) & (at < texts.length[row])
    return np.where(known, texts.tokens[row, np.where(known, at, 0)], -1)
