"""The target's own law of the first tokens after a prompt, and how well drawn texts fit it.

With few tokens to choose from at each place the law of a whole beginning is enumerated exactly,
from plain passes over the text: no engine, no cache, no tree. Drawn texts are then judged by
chi-square, rare beginnings pooled, and by total variation against what the law itself shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from engine.protocol import Floats
from eval.lossless.departures import logits_after
from models.decoder import Decoder

FEWEST_EXPECTED = 5.0
NULL_DRAWS = 4000
Beginning = tuple[int, ...]


@dataclass(frozen=True)
class Law:
    """Probability of every beginning that can come, the likeliest first."""

    beginnings: tuple[Beginning, ...]
    probability: Floats

    @property
    def entropy_nats(self) -> float:
        """How broad it is; a law of one beginning (0) could show nothing."""
        return float(-(self.probability * np.log(self.probability)).sum())


@dataclass(frozen=True)
class Fit:
    """How drawn beginnings lie to the law."""

    draws: int
    chi_square_p: float
    total_variation: float
    chance: tuple[float, float, float]
    """Mean, 2.5 and 97.5 % point of the total variation that the law itself shows in `draws`."""
    variation_p: float
    """Share of such draws at least as far off."""
    impossible: int
    """Drawn beginnings that the law never gives."""

    @property
    def p(self) -> float:
        """The smaller p-value, for two tests; 0 where something impossible was drawn."""
        return 0.0 if self.impossible else min(2 * min(self.chi_square_p, self.variation_p), 1.0)


def law_of(decoder: Decoder, prompt: list[int], choices: int, tokens: int) -> Law:
    """Of the first `tokens` tokens at temperature 1, drawn of the `choices` likeliest each time.

    Takes 1 + choices + … + choices^(tokens - 1) passes. Tokens that tie with the last of the
    likeliest would all be in, as sampling has it; of real logits none do.
    """
    found: dict[Beginning, float] = {(): 1.0}
    for _ in range(tokens):
        longer: dict[Beginning, float] = {}
        for start, chance in found.items():
            best = logits_after(decoder, [*prompt, *start]).double().topk(choices)
            weights = best.values.softmax(0).tolist()
            for token, weight in zip(best.indices.tolist(), weights, strict=True):
                longer[(*start, token)] = chance * weight
        found = longer
    order = sorted(found, key=lambda b: -found[b])
    return Law(tuple(order), np.array([found[b] for b in order]))


def fit(law: Law, drawn: Iterable[Sequence[int]], rng: np.random.Generator) -> Fit:
    """Judge drawn beginnings, each as long as the law's."""
    place = {beginning: i for i, beginning in enumerate(law.beginnings)}
    counts, impossible = np.zeros(len(place)), 0
    for beginning in map(tuple, drawn):
        if beginning in place:
            counts[place[beginning]] += 1
        else:
            impossible += 1
    n = int(counts.sum()) + impossible
    variation = _variation(counts, law.probability, n)
    chances = law.probability / law.probability.sum()
    null = rng.multinomial(n, chances, size=NULL_DRAWS).astype(np.float64)
    by_chance = _variation(null, law.probability, n)
    low, high = np.quantile(by_chance, [0.025, 0.975])
    return Fit(
        draws=n,
        chi_square_p=_chi_square_p(counts, law.probability * n) if not impossible else 0.0,
        total_variation=float(variation),
        chance=(float(by_chance.mean()), float(low), float(high)),
        variation_p=float((1 + (by_chance >= variation).sum()) / (1 + NULL_DRAWS)),
        impossible=impossible,
    )


def _variation(counts: Floats, probability: Floats, n: int) -> Floats:
    """Total variation of counts [..., beginnings] to the law; what is impossible counts in full."""
    off = np.abs(counts / n - probability).sum(axis=-1)
    return np.asarray((off + (1.0 - counts.sum(axis=-1) / n)) / 2)


def _chi_square_p(counts: Floats, expected: Floats) -> float:
    """Of the beginnings expected five times at least, and the rest as one."""
    often = expected >= FEWEST_EXPECTED
    seen, wanted = counts[often], expected[often]
    if not often.all():
        seen, wanted = (
            np.append(seen, counts[~often].sum()),
            np.append(wanted, expected[~often].sum()),
        )
    if len(seen) < 2:  # one beginning, or all of them rare: nothing to tell apart
        return 1.0
    return float(stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue)
