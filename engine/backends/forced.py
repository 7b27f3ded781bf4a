"""A backend whose target says a given text: all the real work is done, only the choice is not its.

Timing needs shapes and not meaning, so a network with random weights can serve a text of which it
knows nothing. And a run can be repeated with the text of another, whatever rounding does: what is
accepted then hangs on the trees alone (ALGORITHMS.md §11).
"""

from __future__ import annotations

from engine.backends.protocol import FAILED_TOKEN, Backend, Choices
from engine.backends.wrapper import BackendWrapper
from engine.errors import UserError
from engine.kernels.known_text import force_choices
from engine.known_texts import KnownTexts
from engine.protocol import Bools, Floats
from engine.request import Request
from engine.state import SlotState, TreeState


class Forced(BackendWrapper):
    """Overwrites the target's choices by `texts`, which may be exchanged between two episodes.

    A request whose text is not known, or has come to its end, is left to the target. Where the
    target's logits are not finite the request fails as ever.
    """

    def __init__(self, inner: Backend, texts: KnownTexts | None = None) -> None:
        super().__init__(inner)
        self.texts = texts or KnownTexts()

    def admit(self, slot: int, request: Request) -> None:
        """Raises UserError for a request that asks for log probabilities of a forced text."""
        if request.sampling.logprobs and request.id in self.texts.ids:
            raise UserError(
                f"request {request.id} asks for log probabilities, but its text is forced, so the "
                "target gives it none; leave `logprobs` out"
            )
        self.inner.admit(slot, request)

    def prefill(self, slot: int, slots: SlotState, end: int) -> int:
        """The text's token behind the prompt, once all of it was run."""
        token = self.inner.prefill(slot, slots, end)
        if token in (-1, FAILED_TOKEN):
            return token
        texts, row = self.texts, int(self.texts.rows(slots.request[0, slot : slot + 1])[0])
        if row < 0 or end >= texts.length[row]:
            return token
        return int(texts.tokens[row, end])

    def verify(
        self, decoding: Bools, margin: Floats, slots: SlotState, trees: TreeState, choices: Choices
    ) -> None:
        """The pass over all kept trees; then, after every node, the text's next token."""
        self.inner.verify(decoding, margin, slots, trees, choices)
        texts = self.texts
        row = texts.rows(slots.request)
        force_choices(decoding, row, texts.tokens, texts.length, slots, trees, choices)
