"""How many prompt tokens to read before the next step: what those who decode can afford.

While prompts are read nobody decodes. n requests emit n · g / t tokens a second between prompts (t
an ordinary step of theirs by the hardware profile, g how much faster tokens came of late), and
their objectives, each with its slack, need `needed` of these. Decoding may be held up for the share
of the time that is not needed, `MARGIN` of what is emitted being spoken for:

    spare = 1 - needed / (MARGIN · n · g / t),    seconds = step · spare / (1 - spare)

So few who decode read fast, many read slowly, and the batch settles where it meets its objectives.
The queue goes on all the same: reading gets at least `LEAST_STEPS` of a step, and pieces are not so
short that a token costs `DEAREST` times the least. No piece takes more than `MOST_STEPS` steps: one
long one would take their slack from those about to end.

`MARGIN`, among 0.5 to 1.2, and the most that is read were chosen by hand on the drawn workloads
that `policies.slack_priced` names; no command repeats that. The others are first guesses.
"""

from __future__ import annotations

from engine.protocol import PROMPT_CHUNKS, Floats

MARGIN = 0.5
LEAST_STEPS, MOST_STEPS = 0.25, 4.0
DEAREST = 2.0
LONGEST = 1024
"""Tokens; beyond the last of `PROMPT_CHUNKS` its price a token goes on."""


def prompt_tokens(needed_per_s: float, emitted_per_s: float, step_s: float, prices: Floats) -> int:
    """Tokens to read, from those needed and emitted a second while `step_s` is all that a step is.

    `prices` [P] are seconds for each of `PROMPT_CHUNKS`.
    """
    seconds = prices.tolist()
    each_s = [s / tokens for s, tokens in zip(seconds, PROMPT_CHUNKS, strict=True)]
    bearable = DEAREST * min(each_s)
    shortest = next(t for t, s in zip(PROMPT_CHUNKS, each_s, strict=True) if s <= bearable)
    spoken_for = min(needed_per_s / max(MARGIN * emitted_per_s, 1e-12), 1.0)
    steps = (1 - spoken_for) / max(spoken_for, 1e-12)
    affordable = _read_in(step_s * min(max(steps, LEAST_STEPS), MOST_STEPS), seconds)
    return min(max(int(affordable), shortest), LONGEST)


def _read_in(given_s: float, seconds: list[float]) -> float:
    """Tokens of one piece that takes so long."""
    tokens_before, before_s = 0, 0.0
    for tokens, taken_s in zip(PROMPT_CHUNKS, seconds, strict=True):
        if given_s < taken_s:
            share = (given_s - before_s) / (taken_s - before_s)
            return tokens_before + max(share, 0.0) * (tokens - tokens_before)
        tokens_before, before_s = tokens, taken_s
    return tokens_before * given_s / max(before_s, 1e-12)
