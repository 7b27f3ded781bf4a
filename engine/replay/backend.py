"""The replay backend: what a live engine drafted and accepted, looked up; what it cost, modelled.

It answers the engine loop as `live` does, one replica at a time. Two invariants make its answers
the live engine's own (ALGORITHMS.md §11): the target's text does not hang on the tree, and the
drafter's state hangs on committed text alone. So candidates, acceptance, paging, chunks and
preemption are exact for greedy text without a margin, and time, power and memory are modelled.

With a margin below 1 it is an approximation. Which child the rule lets through is the target's own
recorded judgement, but the target was never asked how the text goes on from there: a token let
through takes the place of the text's own, and what follows is the recorded text at the same
positions, judged without the margin until a tree is rooted in it again.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from engine.backends.protocol import Backend, Children, Choices
from engine.kernels.beam import BeamState
from engine.paging import PagePool
from engine.profile.hardware_profile import HardwareProfile
from engine.protocol import Bools, Floats, Limits
from engine.replay.clock import ModelledClock
from engine.replay.drift import drift
from engine.replay.effects import Effects
from engine.replay.lookup import Book, answer, new_cursor, offer_children, offer_roots, place_of
from engine.replay.recorded_request import RecordedRequest
from engine.request import Request
from engine.snapshot_origin import digest
from engine.state import SlotState, TreeState


class ReplayBackend(Backend):
    """Serves `RecordedRequest`s of `book`; `clock` says what that would have taken."""

    def __init__(
        self,
        book: Book,
        vocab_size: int,
        profile: HardwareProfile,
        limits: Limits,
        capacity: int,
        page_size: int | None = None,
        kv_pool_tokens: int | None = None,
        effects: Effects | None = None,
    ) -> None:
        """The page parameters are `PagePool.sized`'s, as on live; `effects` are what goes wrong."""
        self.book, self.vocab_size = book, vocab_size
        self.limits, self.capacity = limits, capacity
        self.pool = PagePool.sized(limits.slots, capacity, page_size, kv_pool_tokens)
        self.clock = ModelledClock(profile, effects)
        self._effects = effects
        self._acceptance = 1.0
        """Factor on the acceptance of what was drafted last."""
        self.cursor = new_cursor(1, limits)
        self._resident_bytes = profile.memory.resident_bytes
        self._divergence_watched = False
        # Tokens, cached tokens, requests of a verification, until its step is committed.
        self._verified: tuple[int, int, int] | None = None

    @cached_property
    def recording_digest(self) -> str:
        """What tells this recording from others, whoever opened it."""
        return digest(self.book)

    def admit(self, slot: int, request: Request) -> None:
        """The slot replays the text of a `RecordedRequest`; a server lets no other in."""
        if not isinstance(request, RecordedRequest):
            raise TypeError(f"request {request.id} names no recorded text")
        self.cursor.text[0, slot] = request.text

    def prefill(self, slot: int, slots: SlotState, end: int) -> int:
        """The recorded answer's first token, once the prompt is through."""
        start = int(slots.prefilled[0, slot])
        is_last = end == int(slots.to_prefill[0, slot])
        self.clock.prefill(end - start, start, is_last)
        if not is_last:
            return -1
        return int(self.book.tokens[self.book.first_output[self.cursor.text[0, slot]]])

    def watch_divergence(self, wanted: bool) -> None:
        """It is looked up, and costs no time."""
        self._divergence_watched = wanted

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """Recorded children of the roots; catching up with the committed text is charged."""
        offer_roots(
            drafting,
            slots.context,
            slots.emitted,
            self.book,
            self.cursor,
            *children,
            slots.draft_entropy,
        )
        if self._effects is not None:
            self._acceptance = self._effects.acceptance()
        self.clock.draft_first(*self._load())

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """Recorded children of the beams."""
        offer_children(
            step, slots.context, slots.emitted, self.book, self.cursor, trees, beam, *children
        )
        self.clock.draft_next(*self._load())

    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        """The recorded text's tokens after the root and after every node.

        Drift takes effect here, whole trees at a time: who looked at candidates' tokens before saw
        those that were recorded.
        """
        answer(decoding, slots.context, slots.emitted, self.book, self.cursor, trees, choices)
        if self._divergence_watched:
            places = place_of(self.book, self.cursor, slots.emitted)
            drafted = decoding & (trees.size > 0)
            choices.divergence[:] = np.where(drafted, self.book.divergence[places], np.nan)
        if self._effects is not None and self._acceptance != 1.0:
            key = self._effects.key
            drift(
                self._acceptance, key, decoding, slots.emitted, self.book, self.cursor, trees,
                choices,
            )  # fmt: skip
        self._verified = self._load()
        self.clock.verify(*self._verified)

    def _load(self) -> tuple[int, int, int]:
        """Tokens, cached tokens and requests of the pass that was just looked up."""
        tokens, kv_tokens, requests = self.cursor.load[0].tolist()
        return tokens, kv_tokens, requests

    def first_logprob(self, slot: int) -> float:
        """Never asked: such requests are refused (`RecordedRequest.check`)."""
        raise NotImplementedError("log probabilities are not recorded")

    def emitted_logprobs(self, slot: int, trees: TreeState, choices: Choices) -> list[float]:
        """Never asked: such requests are refused (`RecordedRequest.check`)."""
        raise NotImplementedError("log probabilities are not recorded")

    def commit(self, decoding: Bools, slots: SlotState, trees: TreeState) -> None:
        """Give back the pages behind the accepted path; the engine's own work is charged here."""
        if self._verified is not None:
            self.clock.host(*self._verified)
            self._verified = None
        context = slots.context[0] + trees.accepted_length[0]
        self.pool.trim_all(np.where(decoding[0], context, self.pool.tokens_per_slot))

    def release(self, slot: int) -> None:
        """The slot's request has ended, or gives way to others: its pages are free."""
        self.pool.release(slot)
        self.cursor.drafted_to[0, slot] = 0

    def memory_bytes(self) -> int:
        """What the profiled process held, networks and all caches included."""
        return self._resident_bytes
