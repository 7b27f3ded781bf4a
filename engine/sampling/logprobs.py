"""Log probabilities of emitted tokens, from the raw logits: before penalty, temperature, filters.

They are computed for the requests that ask and for nobody else, where the logits are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from engine.protocol import Ints
from engine.state import TreeState
from models.upload import upload_rows

if TYPE_CHECKING:
    from engine.backends.protocol import Choices


def log_probability(logits: Tensor, token: int) -> float:
    """Log-softmax of one row [vocabulary] at a token."""
    return float(logits.double().log_softmax(-1)[token])


def fill_logprobs(
    logits: Tensor, rows: Ints, slot: Ints, candidate: Ints, trees: TreeState, choices: Choices
) -> None:
    """Note the log probability of each row's choice and of each row's own token at its parent.

    `rows` index the logits [T, vocabulary] and, with them, `slot` and `candidate` [T]; a slot has
    all of its rows among them or none.
    """
    (index,) = upload_rows((rows,), logits.device)
    levels = logits[index].double()
    levels -= levels.logsumexp(-1, keepdim=True)
    slot, candidate = slot[rows], candidate[rows]
    row_of = np.zeros((trees.parent.shape[1], trees.parent.shape[2] + 1), np.int64)
    row_of[slot, candidate + 1] = np.arange(len(rows))
    root, node = candidate < 0, candidate >= 0
    chosen = np.where(
        root, choices.root_token[0][slot], choices.node_token[0][slot, np.maximum(candidate, 0)]
    )
    at = slot[node], candidate[node]
    above = row_of[slot[node], trees.parent[0][at] + 1]
    line = np.concatenate((np.arange(len(rows)), above))
    token = np.concatenate((chosen, trees.token[0][at]))
    logs = levels[upload_rows((line, token), logits.device)].cpu().numpy()
    own = logs[: len(rows)]
    choices.root_logprob[0][slot[root]] = own[root]
    choices.node_logprob[0][slot[node], candidate[node]] = own[node]
    choices.own_logprob[0][at] = logs[len(rows) :]


def emitted_logprobs(slot: int, trees: TreeState, choices: Choices) -> list[float]:
    """Log probability of each token that the walk let a slot emit, bonus token included.

    Only for a slot whose request asks for them (`SamplingParams.logprobs`).
    """
    emitted, length = int(trees.accepted_length[0, slot]), int(trees.path_length[0, slot])
    path = trees.path[0, slot, :length]
    logs: list[float] = choices.own_logprob[0, slot, path].tolist()
    if emitted > length:
        last = choices.node_logprob[0, slot, path[-1]] if length else choices.root_logprob[0, slot]
        logs.append(float(last))
    return logs
