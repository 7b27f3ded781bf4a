"""Twin of `engine.drafters.ngrams.continue_text`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def continue_text(
    text: Sequence[int], latest: Sequence[int], width: int
) -> list[tuple[int, float]]:
    """The `width` likeliest continuations with their probabilities; `latest` is newest first."""
    followers: dict[int, list[int]] = {}  # by length of the n-gram before them, newest first
    for i in range(len(text) - 1, 0, -1):
        before = list(reversed(text[:i]))[: len(latest)]
        n = 0
        while n < len(before) and before[n] == latest[n]:
            n += 1
        followers.setdefault(n, []).append(text[i])
    chances: dict[int, float] = {}
    escape = 1.0
    for n in range(len(latest), 0, -1):
        seen = Counter(t for t in followers.get(n, []) if t not in chances)
        if seen:
            whole = sum(seen.values()) + len(seen)
            chances |= {t: escape * count / whole for t, count in seen.items()}
            escape *= len(seen) / whole
    return sorted(chances.items(), key=lambda item: -item[1])[:width]
