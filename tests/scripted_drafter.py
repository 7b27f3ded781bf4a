"""A drafter that knows the answers, a target that reads them out, and a clock set by hand.

`ScriptedDrafter` may stand in for the drafter of a live backend, so that walks are long;
`ScriptedBackend` runs no network at all, so that every time and token of a test is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.backends.protocol import Children, Choices
from engine.drafters.protocol import Drafter
from engine.kernels.beam import BeamState
from engine.paging import PagePool
from engine.protocol import Bools, Floats, Ints
from engine.request import Request
from engine.state import SlotState, TreeState


class ScriptedDrafter(Drafter):
    """Proposes the true next token with probability `hit_rate`, at a random place or first."""

    name = "scripted"

    def __init__(
        self,
        texts: Mapping[int, Sequence[int]],
        vocab: int,
        rng: np.random.Generator,
        hit_rate: float,
        likeliest: bool = False,
    ) -> None:
        self.texts, self.vocab, self.rng = texts, vocab, rng  # texts: prompt and answer, by request
        self.hit_rate, self.likeliest = hit_rate, likeliest

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """Children of the root, which is the text's token at `context`."""
        for slot in np.flatnonzero(drafting[0]).tolist():
            self._propose(slot, 0, int(slots.context[0, slot]) + 1, slots, children)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """Children of the beam, `step` tokens behind the root."""
        for slot in np.flatnonzero(beam.size[0]).tolist():
            for place in range(int(beam.size[0, slot])):
                at = int(slots.context[0, slot]) + step + 1
                self._propose(slot, place, at, slots, children)

    def _propose(
        self, slot: int, place: int, at: int, slots: SlotState, children: Children
    ) -> None:
        text = self.texts[int(slots.request[0, slot])]
        width = children.token.shape[-1]
        truth = text[at] if at < len(text) else 0
        others = self.rng.permutation([t for t in range(self.vocab) if t != truth])[:width]
        if self.rng.random() < self.hit_rate:
            others[0 if self.likeliest else self.rng.integers(width)] = truth
        chances = -np.sort(-self.rng.dirichlet(np.ones(width)))
        children.token[0, slot, place] = others
        children.probability[0, slot, place] = chances


@dataclass
class HandClock:
    """Stands in for `perf_counter`: it moves only when it is told to."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


@dataclass
class ScriptedBackend:
    """A `Backend` whose target says `answers` and whose every call takes the time given here."""

    clock: HandClock
    drafter: ScriptedDrafter
    answers: Mapping[int, Sequence[int]]
    prefill_s: float = 0.5
    draft_s: float = 0.0
    verify_s: float = 0.25
    prefilled: list[tuple[int, int, int]] = field(default_factory=list)
    """(request, first, end) of every prefill call."""
    released: list[int] = field(default_factory=list)
    pool: PagePool = field(default_factory=lambda: PagePool.sized(16, 64))
    admitted: list[tuple[int, int]] = field(default_factory=list)
    """(slot, request) of every admission."""
    vocab_size: int = 50
    failing: frozenset[int] = frozenset()
    """Requests whose verification gives no numbers."""

    def admit(self, slot: int, request: Request) -> None:
        """Note it."""
        self.admitted.append((slot, request.id))

    def prefill(self, slot: int, slots: SlotState, end: int) -> int:
        """The answer's first token."""
        self.clock.advance(self.prefill_s)
        request = int(slots.request[0, slot])
        self.prefilled.append((request, int(slots.prefilled[0, slot]), end))
        return self.answers[request][0]

    def draft_ahead(self, drafting: Bools, depth: Ints, width: Ints, slots: SlotState) -> None:
        """Draft steps are asked for one by one."""

    def watch_divergence(self, wanted: bool) -> None:
        """There is none: the drafter says no distribution."""

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """Ask the drafter."""
        self.clock.advance(self.draft_s)
        self.drafter.draft_first(drafting, slots, children)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """Ask the drafter."""
        self.clock.advance(self.draft_s)
        self.drafter.draft_next(step, slots, trees, beam, children)

    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        """The answer's next token after the root and after every kept node."""
        self.clock.advance(self.verify_s)
        for slot in np.flatnonzero(decoding[0]).tolist():
            answer = self.answers[int(slots.request[0, slot])]
            choices.failed[0, slot] = int(slots.request[0, slot]) in self.failing
            at = int(slots.emitted[0, slot])
            choices.root_token[0, slot] = answer[at]
            for node in np.flatnonzero(trees.kept[0, slot]).tolist():
                after = at + int(trees.depth[0, slot, node])
                choices.node_token[0, slot, node] = answer[after] if after < len(answer) else 0

    def commit(self, decoding: Bools, slots: SlotState, trees: TreeState) -> None:
        """There is no cache, but what it would hold is accounted for."""
        context = slots.context[0] + trees.accepted_length[0]
        self.pool.trim_all(np.where(decoding[0], context, self.pool.tokens_per_slot))

    def first_logprob(self, slot: int) -> float:
        """Of the first token."""
        return -1.0

    def emitted_logprobs(self, slot: int, trees: TreeState, choices: Choices) -> list[float]:
        """A figure by token."""
        return [-0.5] * int(trees.accepted_length[0, slot])

    def release(self, slot: int) -> None:
        """Note it, and take its pages back."""
        self.released.append(slot)
        self.pool.release(slot)

    def memory_bytes(self) -> int:
        """A figure to recognise."""
        return 1234
