"""From the target's logits to what it emits after every node, under each request's parameters.

Greedy requests cost one argmax. Whatever needs more (temperature, penalty, a margin, log
probabilities) is worked out for the rows that need it, in batches over all requests at once.

Logits on a card are searched there and the host reads the tokens, once. Rows that need a draw are
brought to the host, for the noise is ours, keyed by seed, position and token: samplers of a card
draw noise of their own, under which a text would depend on what else is served.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.backends.protocol import FAILED_TOKEN, Choices
from engine.protocol import Bools, Floats, Ints
from engine.request import Request
from engine.sampling.draw import draw, log_ratios
from engine.sampling.filters import floors, kth_largest
from engine.sampling.likeliest import likeliest
from engine.sampling.logprobs import fill_logprobs, log_probability
from engine.sampling.params import GREEDY
from engine.sampling.penalty import penalise
from engine.state import SlotState, TreeState
from models.upload import upload_rows


class Rows(NamedTuple):
    """Some rows of a target pass: the nodes whose next tokens are wanted."""

    slot: Ints  # [n]
    candidate: Ints  # [n] -1 the root
    depth: Ints  # [n] 0 the root


class Text(NamedTuple):
    """What is known of every slot's text, and the trees behind it; no replica axis."""

    length: Ints  # [S] tokens, root included
    tokens: Ints  # [S, capacity]
    parent: Ints  # [S, N]
    token: Ints  # [S, N]


class Drawn(NamedTuple):
    """The chosen tokens of some rows and what a margin has to know of them."""

    levels: Tensor  # [n, vocabulary] logits after the penalty
    floor: Floats  # [n] lowest level of the support
    temperature: Floats  # [n]
    seed: Ints  # [n]
    position: Ints  # [n]
    token: Ints  # [n]
    score: Floats  # [n]


class Sampler:
    """Sampling parameters of all slots, struct-of-arrays [S], and the choices under them."""

    def __init__(self, slots: int) -> None:
        self.temperature, self.top_k = np.zeros(slots), np.zeros(slots, np.int64)
        self.top_p, self.min_p = np.ones(slots), np.zeros(slots)
        self.penalty = np.ones(slots)
        self.seed, self.guard = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
        self.logprobs = np.zeros(slots, np.bool_)
        self.prompt_tokens = np.zeros(slots, np.int64)
        self.first_logprob = np.full(slots, np.nan)
        for slot in range(slots):
            self.release(slot)

    def admit(self, slot: int, request: Request) -> None:
        """A request gets the slot, for the first time or again."""
        params = request.sampling
        self.temperature[slot], self.top_k[slot] = params.temperature, params.top_k
        self.top_p[slot], self.min_p[slot] = params.top_p, params.min_p
        self.penalty[slot] = params.repetition_penalty
        self.seed[slot] = request.id if params.seed is None else params.seed
        self.guard[slot] = params.margin_guard
        self.logprobs[slot] = params.logprobs
        self.prompt_tokens[slot] = len(request.prompt)

    def release(self, slot: int) -> None:
        """Whoever has the slot without parameters of its own is served greedily."""
        self.temperature[slot], self.top_k[slot] = GREEDY.temperature, GREEDY.top_k
        self.top_p[slot], self.min_p[slot] = GREEDY.top_p, GREEDY.min_p
        self.penalty[slot], self.guard[slot] = GREEDY.repetition_penalty, GREEDY.margin_guard
        self.logprobs[slot] = False

    @property
    def plain(self) -> Bools:
        """Slots [S] that emit the likeliest token, as the logits stand."""
        return (self.temperature == 0.0) & (self.penalty == 1.0)

    def first(self, slot: int, logits: Tensor, text: Ints, length: int) -> int:
        """The token after a prompt: logits [1, vocabulary], text [S, capacity] of `length` tokens.

        FAILED_TOKEN when the logits are not finite.
        """
        best, finite = likeliest(logits)
        if not finite[0]:
            return FAILED_TOKEN
        token = int(best[0])
        if not self.plain[slot]:
            none = np.zeros((len(text), 0), np.int64)
            rows = Rows(np.array([slot]), np.array([-1]), np.array([0]))
            lengths = np.full(len(text), length)
            there = Text(lengths, text, none, none)
            token = int(self._draw(_on_host(logits), best, rows, there).token[0])
        if self.logprobs[slot]:
            self.first_logprob[slot] = log_probability(logits[0], token)
        return token

    def choose(
        self,
        logits: Tensor,
        slot: Ints,
        candidate: Ints,
        margin: Floats,
        slots: SlotState,
        trees: TreeState,
        choices: Choices,
    ) -> None:
        """What follows each row: logits [T, vocabulary] of root and kept nodes of some slots.

        `slot` and `candidate` (-1 the root) are by row, `margin` is by slot. Fills `choices`.
        """
        best, finite = likeliest(logits)
        failed = choices.failed[0]
        failed[:] = False
        failed[slot[~finite]] = True
        token = best.numpy()
        loose = (margin < 1.0) & ~failed
        drawing = ~self.plain & ~failed
        # Of a greedy request a margin asks about the nodes that have children, and no others.
        wanted = drawing[slot]
        if loose.any():
            wanted |= loose[slot] & _has_children(slot, candidate, trees)
        rows = np.flatnonzero(wanted)
        if len(rows):
            depth = np.where(candidate < 0, 0, trees.depth[0][slot, candidate])[rows]
            some = Rows(slot[rows], candidate[rows], depth)
            text = Text(slots.context[0] + 1, slots.text[0], trees.parent[0], trees.token[0])
            if len(rows) < len(logits):
                (index,) = upload_rows((rows,), logits.device)
                mine = best[torch.from_numpy(rows)]
                drawn = self._draw(_on_host(logits[index]), mine, some, text)
            else:  # no copy of what may be many megabytes
                drawn = self._draw(_on_host(logits), best, some, text)
            token[rows] = drawn.token
            if loose.any():
                self._compare(drawn, some, loose, trees, choices)
        root, node = candidate < 0, candidate >= 0
        choices.root_token[0][slot[root]] = token[root]
        choices.node_token[0][slot[node], candidate[node]] = token[node]
        asked = np.flatnonzero((self.logprobs & ~failed)[slot])
        if len(asked):
            fill_logprobs(logits, asked, slot, candidate, trees, choices)

    def _draw(self, logits: Tensor, best: Tensor, rows: Rows, text: Text) -> Drawn:
        """Choose a token for each row of the host's logits [n, vocabulary].

        `best` [n] are the likeliest tokens.
        """
        wide = logits.dtype in (torch.float32, torch.float64)
        levels = (logits if wide else logits.float()).contiguous()
        at = rows.slot
        if (self.penalty[at] != 1.0).any():
            levels = levels.clone()  # the logits stay as they are: log probabilities need them
            penalise(
                levels.numpy(),
                rows.slot,
                rows.candidate,
                self.penalty,
                text.length,
                text.tokens,
                text.parent,
                text.token,
            )
            best = levels.argmax(-1)
        token = best.numpy().copy()
        score = levels.gather(1, best[:, None])[:, 0].double().numpy()
        floor = np.full(len(at), -np.inf)
        temperature, seed = self.temperature[at], self.seed[at]
        position = text.length[at] + rows.depth - self.prompt_tokens[at]
        hot = np.flatnonzero(temperature > 0.0)
        if len(hot):
            of = at[hot]
            floor[hot] = floors(
                levels if len(hot) == len(at) else levels[torch.from_numpy(hot)],
                score[hot],
                temperature[hot],
                self.top_k[of],
                self.top_p[of],
                self.min_p[of],
            )
            draw(levels.numpy(), floor, temperature, seed, position, token, score)
        return Drawn(levels, floor, temperature, seed, position, token, score)

    def _compare(
        self, drawn: Drawn, rows: Rows, loose: Bools, trees: TreeState, choices: Choices
    ) -> None:
        """How far each drafted token misses the chosen one, for requests under a margin."""
        mine = np.flatnonzero(loose[rows.slot])
        levels = drawn.levels[torch.from_numpy(mine)]
        slot = rows.slot[mine]
        log_ratios(
            levels.numpy(),
            np.maximum(drawn.floor[mine], kth_largest(levels, self.guard[slot])),
            drawn.temperature[mine],
            drawn.seed[mine],
            drawn.position[mine],
            drawn.score[mine],
            slot,
            rows.candidate[mine],
            trees.kept[0],
            trees.parent[0],
            trees.token[0],
            choices.log_ratio[0],
        )


def _on_host(logits: Tensor) -> Tensor:
    """The logits in the host's memory, themselves where they are there; 16 bits come as float32."""
    if logits.device.type == "cpu":
        return logits
    return (logits if logits.dtype == torch.float64 else logits.float()).cpu()


def _has_children(slot: Ints, candidate: Ints, trees: TreeState) -> Bools:
    """Which rows stand behind a node with kept children."""
    has = np.zeros((trees.parent.shape[1], trees.parent.shape[2] + 1), np.bool_)
    node = candidate >= 0
    has[slot[node], trees.parent[0][slot[node], candidate[node]] + 1] = True
    return has[slot, candidate + 1]
