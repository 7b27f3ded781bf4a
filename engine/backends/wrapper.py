"""A backend around another one: everything is passed on until a subclass says otherwise."""

from __future__ import annotations

from engine.backends.protocol import Backend, Children, Choices, DraftedAhead
from engine.kernels.beam import BeamState
from engine.paging import PagePool
from engine.protocol import Bools, Floats, Ints
from engine.request import Request
from engine.state import SlotState, TreeState


class BackendWrapper(Backend):
    """Passes every call on to `inner`, and every question that the protocol does not name.

    The engine asks some backends for `limits`, `capacity` and `drafter` besides.
    """

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.vocab_size = inner.vocab_size

    @property
    def pool(self) -> PagePool:  # type: ignore[override]
        """The inner backend's, which it may exchange."""
        return self.inner.pool

    def __getattr__(self, name: str) -> object:
        """What the protocol does not name."""
        if name == "inner":  # before `__init__`: there is nobody to ask yet
            raise AttributeError(name)
        return getattr(self.inner, name)

    def admit(self, slot: int, request: Request) -> None:
        """Pass it on."""
        self.inner.admit(slot, request)

    def prefill(self, slot: int, slots: SlotState, end: int) -> int:
        """The inner backend's first token."""
        return self.inner.prefill(slot, slots, end)

    def watch_divergence(self, wanted: bool) -> None:
        """Pass it on."""
        self.inner.watch_divergence(wanted)

    def draft_ahead(
        self, drafting: Bools, depth: Ints, width: Ints, slots: SlotState
    ) -> DraftedAhead | None:
        """The inner backend's answers to all draft steps, if it gives them."""
        return self.inner.draft_ahead(drafting, depth, width, slots)

    def draft_first(self, drafting: Bools, slots: SlotState, children: Children) -> None:
        """The inner backend's children."""
        self.inner.draft_first(drafting, slots, children)

    def draft_next(
        self, step: int, slots: SlotState, trees: TreeState, beam: BeamState, children: Children
    ) -> None:
        """The inner backend's children."""
        self.inner.draft_next(step, slots, trees, beam, children)

    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        """The inner backend's choices."""
        self.inner.verify(decoding, margin, slots, trees, choices)

    def first_logprob(self, slot: int) -> float:
        """The inner backend's."""
        return self.inner.first_logprob(slot)

    def emitted_logprobs(self, slot: int, trees: TreeState, choices: Choices) -> list[float]:
        """The inner backend's."""
        return self.inner.emitted_logprobs(slot, trees, choices)

    def commit(self, decoding: Bools, slots: SlotState, trees: TreeState) -> None:
        """Pass it on."""
        self.inner.commit(decoding, slots, trees)

    def release(self, slot: int) -> None:
        """Pass it on."""
        self.inner.release(slot)

    def memory_bytes(self) -> int:
        """The inner backend's."""
        return self.inner.memory_bytes()
