"""What the engine loop asks of a backend.

`live` runs networks; `engine.replay.backend` looks up what a live engine recorded.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from engine.kernels.beam import BeamState
from engine.paging import PagePool
from engine.protocol import Bools, Floats, Ints, Limits
from engine.request import Request
from engine.state import SlotState, TreeState


class Children(NamedTuple):
    """A draft step's answer: the best children of each beam node, best first."""

    token: Ints  # [R, S, W, W]
    probability: Floats  # [R, S, W, W] conditional on the parent; 0 is no child, nor any behind


class DraftedAhead(NamedTuple):
    """The answers of all draft steps of an iteration, of T nodes in all, step after step.

    Those of a step belong to the beam that `engine.kernels.beam.grow` makes of the step before.
    """

    token: Ints  # [T, C] best children, best first
    probability: Floats  # [T, C] as in `Children`
    slots: Ints  # [T]
    places: Ints  # [T] place in the slot's beam
    ends: list[int]  # of the steps in T, behind a leading 0

    def write(self, step: int, to: Children) -> None:
        """The answer of draft step `step` (1, 2, …)."""
        mine = slice(self.ends[step - 1], self.ends[step])
        at = 0, self.slots[mine], self.places[mine], slice(self.token.shape[1])
        to.probability[:] = 0.0
        to.token[at], to.probability[at] = self.token[mine], self.probability[mine]


FAILED_TOKEN = -2  # what `prefill` answers when the target's logits are not finite


class Choices(NamedTuple):
    """What the target emits after each verified node."""

    root_token: Ints  # [R, S]
    node_token: Ints  # [R, S, N]
    log_ratio: Floats  # [R, S, N] a candidate's score over that of the token chosen at its parent
    failed: Bools  # [R, S] the logits are not finite: the request fails, and it alone
    # Of slots that ask for log probabilities: of the token after the root, of the token after each
    # node, and of each node's own token.
    root_logprob: Floats  # [R, S]
    node_logprob: Floats  # [R, S, N]
    own_logprob: Floats  # [R, S, N]
    # Of slots that drafted, where it is watched: nats by which the drafter's distribution behind
    # the root misses the target's. NaN of others, stale where it is not watched.
    divergence: Floats  # [R, S]


def new_children(replicas: int, limits: Limits) -> Children:
    """Room for one draft step."""
    shape = (replicas, limits.slots, limits.max_width, limits.max_width)
    return Children(np.zeros(shape, np.int64), np.zeros(shape))


def new_choices(replicas: int, limits: Limits) -> Choices:
    """Room for one verification."""
    slots = (replicas, limits.slots)
    nodes = (*slots, limits.max_candidates)
    return Choices(
        root_token=np.zeros(slots, np.int64),
        node_token=np.zeros(nodes, np.int64),
        log_ratio=np.full(nodes, -np.inf),
        failed=np.zeros(slots, np.bool_),
        root_logprob=np.zeros(slots),
        node_logprob=np.zeros(nodes),
        own_logprob=np.zeros(nodes),
        divergence=np.full(slots, np.nan),
    )


class Backend(Protocol):
    """Prefill, draft, verify and commit for the slots of all replicas."""

    pool: PagePool
    """Which slot owns which KV pages; the loop reserves in it before every step."""
    vocab_size: int
    """Tokens that the target knows: prompts hold ids from 0 to below it."""

    def admit(self, slot: int, request: Request) -> None:
        """The request gets the slot, for the first time or again."""
        ...

    def prefill(self, slot: int, slots: SlotState, end: int) -> int:
        """Run the slot's prompt tokens [prefilled, end); the first token once all are through.

        -1 before, FAILED_TOKEN when the target's logits are not finite.
        """
        ...

    def watch_divergence(self, wanted: bool) -> None:
        """Whether `verify` is to fill `choices.divergence`, from the next draft on."""
        ...

    def draft_ahead(
        self, drafting: Bools, depth: Ints, width: Ints, slots: SlotState
    ) -> DraftedAhead | None:
        """All draft steps of trees so deep and wide [R, S], where the host need not look between.

        None: they are to be asked for one by one. Else it is in all as if they had been.
        """
        return None

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """Catch up with the committed text and score the root's children (into place 0).

        Notes in `slots.draft_entropy` what is known of the drafter's distribution there.
        """
        ...

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """Score the children of the beam that draft step `step` made."""
        ...

    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        """One target pass over root and kept nodes of every decoding slot; fills `choices`."""
        ...

    def first_logprob(self, slot: int) -> float:
        """Log probability of the token that `prefill` gave, for a request that asks for such."""
        ...

    def emitted_logprobs(self, slot: int, trees: TreeState, choices: Choices) -> list[float]:
        """Log probabilities of the tokens that the walk emits, for a request that asks for such."""
        ...

    def commit(self, decoding: Bools, slots: SlotState, trees: TreeState) -> None:
        """Keep what belongs to the accepted path; called before the slots' arrays move on."""
        ...

    def release(self, slot: int) -> None:
        """The slot's request has ended."""
        ...

    def memory_bytes(self) -> int:
        """Memory that serving holds."""
        ...
