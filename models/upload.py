"""Copies from the host to a network's device, queued so that the host waits for none of them.

What is read back from a device is its users' business: every such read is a wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """The host's `tensor` on `device`, itself where that is the CPU or it is there already.

    To a card the copy is queued from pinned memory of torch's, which torch does not lend out again
    before the copy has ended: the caller may overwrite `tensor` at once.
    """
    if device.type == tensor.device.type:
        return tensor
    if device.type == "cuda":
        tensor = tensor.contiguous().pin_memory()
    return tensor.to(device, non_blocking=True)


def upload_rows(
    rows: Sequence[NDArray[np.int64]] | NDArray[np.int64], device: torch.device
) -> tuple[Tensor, ...]:
    """Index arrays [n], all of one length, on `device`: one copy for all, on the CPU none."""
    if device.type == "cpu":
        return tuple(map(torch.from_numpy, rows))
    return upload(torch.from_numpy(np.stack(list(rows))), device).unbind()
