"""Whether two texts differ only where rounding decides between two tokens.

At the first place where they part, a reference says how far apart it has the two tokens that were
chosen; what was measured as the logits' error cannot turn around more than twice itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from benchmarks.gpu_check.frame import failing_drafter

Logits = Callable[[Sequence[int]], Tensor]
"""From a text [n] to the reference's logits [vocabulary] after it."""


class Compared:
    """Pairs of texts, counted."""

    def __init__(self) -> None:
        self.same = self.total = 0
        self.unexplained: list[str] = []
        self.draft_failures = 0
        """Draft calls that raised on the way, which no text shows."""

    @property
    def wrong(self) -> list[str]:
        """What rounding does not explain."""
        return [*self.unexplained, *failing_drafter(self.draft_failures)]

    def add(
        self,
        prompt: Sequence[int],
        text: Sequence[int],
        other: Sequence[int],
        logits: Logits,
        error: float,
    ) -> None:
        """One pair of answers to `prompt`; `error` is the largest of a logit."""
        self.total += 1
        if list(text) == list(other):
            self.same += 1
            return
        pairs = zip(text, other, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(text), len(other)))
        if at >= min(len(text), len(other)):
            self.unexplained.append(f"one answer ends after {at} tokens")
            return
        levels = logits([*prompt, *text[:at]])
        apart = abs(float(levels[text[at]] - levels[other[at]]))
        if apart > 2 * error:
            self.unexplained.append(
                f"token {at} is {text[at]} or {other[at]}, {apart:.3g} apart where logits err by "
                f"{error:.3g}"
            )

    def __str__(self) -> str:
        tied = self.total - self.same - len(self.unexplained)
        return f"{self.same} of {self.total}" + (f", {tied} at near ties" if tied else "")
