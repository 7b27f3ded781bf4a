"""Verification rules that we do not use, as exact laws of the token that follows a text.

Each is lossless as published and has one known way to go wrong (research: SGLang's coins with
duplicate siblings, p/q rejection pruned by draft confidence, a residual that is not renormalised).
The enumeration must find all of these faults, or its zero would mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Chances = Sequence[Fraction]  # by token


def coin(target: Chances, children: Sequence[int]) -> list[Fraction]:
    """SGLang's target-only rule: one uniform number a node tries the children in turn.

    Child i is taken when the number is below the summed chances of the children tried so far; if
    none is, the token comes from the target without the tried ones. Right for distinct children.
    """
    law = [Fraction(0)] * len(target)
    tried = Fraction(0)
    for child in children:
        taken = min(target[child], 1 - tried)
        law[child] += taken
        tried += taken
    rest = [Fraction(0) if t in children else p for t, p in enumerate(target)]
    total = sum(rest, Fraction(0))
    for token, chance in enumerate(rest):
        if total:
            law[token] += (1 - tried) * chance / total
    if not total and tried < 1:
        law[children[0]] += 1 - tried
    return law


def rejection(
    target: Chances, draft: Chances, prune_below: Fraction = Fraction(0), renormalise: bool = True
) -> list[Fraction]:
    """Leviathan's and Chen's p/q rule for one drafted token.

    Wrong when a drafted token is dropped for its own draft chance (below `prune_below`), and when
    the residual is drawn from as it stands, so that what it lacks to 1 falls to the last token.
    """
    residual = [max(p - q, Fraction(0)) for p, q in zip(target, draft, strict=True)]
    total = sum(residual, Fraction(0))
    if renormalise and total:
        residual = [chance / total for chance in residual]
    elif not renormalise:
        residual[-1] += 1 - total
    law = [Fraction(0)] * len(target)
    for drafted, q in enumerate(draft):
        if q == 0:
            continue
        if q < prune_below:  # the token is never shown to the target
            for token, p in enumerate(target):
                law[token] += q * p
            continue
        accepted = min(Fraction(1), target[drafted] / q)
        law[drafted] += q * accepted
        for token, chance in enumerate(residual):
            law[token] += q * (1 - accepted) * chance
    return law
