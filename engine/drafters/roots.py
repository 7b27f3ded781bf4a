"""What a drafter with a network said behind the roots, kept from the draft to the verification.

Controllers learn two things of it: its entropy, always, and, if they ask, how far it missed the
target (`engine.drafters.divergence`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.drafters.divergence import divergence_nats
from engine.kernels.entropy import write_entropies
from engine.protocol import Floats, Ints
from models.upload import upload_rows


class Roots:
    """Logits [S, V_draft] behind the roots drafted last, on the network's device."""

    def __init__(self, slots: int, target_ids: Tensor | None) -> None:
        """`target_ids` [V_draft] are the target's where the drafter numbers tokens otherwise."""
        self.target_ids = target_ids
        self.kept = False
        """Whether logits are kept: somebody will ask for the divergence."""
        self._noted = np.zeros(slots, np.bool_)  # since the last verification
        self._logits: Tensor | None = None

    def note(self, logits: Tensor, slots: Ints, entropy: Floats) -> None:
        """The drafter gave logits [T, V_draft], all finite, behind the roots of `slots` [T].

        Writes their entropies into `entropy` [S]; on a card, where the host would have to wait for
        them, NaN.
        """
        if logits.device.type == "cpu":
            write_entropies(logits.float().numpy(), slots, entropy)
        else:
            entropy[slots] = np.nan
        if self.kept:
            if self._logits is None:
                self._logits = logits.new_zeros(len(self._noted), logits.shape[1])
            (there,) = upload_rows((slots,), logits.device)
            self._logits[there] = logits
            self._noted[slots] = True

    def divergence(self, target: Tensor, rows: Ints, slots: Ints) -> Floats:
        """By how many nats each slot [S] missed the target, NaN where it was not noted.

        Rows `rows` [n] of the target's logits [T, V] stand behind the roots of `slots` [n]. What
        was noted is forgotten.
        """
        missed = np.full(len(self._noted), np.nan)
        told = self._noted[slots]
        rows, slots = rows[told], slots[told]
        if len(rows) and self._logits is not None:
            row, slot = upload_rows((rows, slots), target.device)
            wide = torch.promote_types(target.dtype, torch.float32)
            said = self._logits[slot].to(wide)
            nats = divergence_nats(target[row].to(wide), said, self.target_ids)
            missed[slots] = nats.cpu().numpy()
        self._noted[:] = False
        return missed
