"""The walk keeps the target's law exactly, and the enumeration notices rules that do not."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tests.enumeration import (
    PARTS,
    Law,
    Production,
    Step,
    Target,
    Text,
    enumerate_cases,
    law_of_text,
    random_target,
    total_variation,
)
from tests.other_verifiers import coin, rejection

CONTROLS = 25


def test_the_walk_keeps_the_law_exactly() -> None:
    cases, largest = enumerate_cases(200, seed=0)  # a thousand: `benchmarks.engine`
    assert (cases, largest) == (200, Fraction(0))


def test_the_cases_accept_drafts_and_stop() -> None:
    longest, stopped = set(), 0
    for seed in range(40):
        target = random_target(seed)
        longest |= {len(fresh) for fresh in Production(target)(())}
        stopped += any(len(t) < target.length for t in law_of_text(target, target.ordinary))
    assert longest >= {1, 2, 3}
    assert stopped > 5


def worst(make: Callable[[Target], Step]) -> Fraction:
    """Largest total variation over some targets."""
    targets = [random_target(seed) for seed in range(CONTROLS)]
    return max(
        total_variation(law_of_text(t, make(t)), law_of_text(t, t.ordinary)) for t in targets
    )


def as_step(target: Target, rule: Callable[[list[Fraction], np.random.Generator], list]) -> Step:
    """A rule for one token, with a generator that hangs on the text, as an iteration."""

    def step(text: Text) -> Law:
        chances = [Fraction(int(w), PARTS) for w in target.weights(text)]
        law = rule(chances, np.random.default_rng([target.seed, 9, *text]))
        assert sum(law) == 1
        return {(t,): p for t, p in enumerate(law) if p}

    return step


def random_draft(rng: np.random.Generator, vocab: int) -> list[Fraction]:
    return [Fraction(int(w), PARTS) for w in rng.multinomial(PARTS, rng.dirichlet(np.ones(vocab)))]


@pytest.mark.parametrize("repeat", [False, True], ids=["sound", "duplicates"])
def test_coins_with_duplicate_siblings_are_found_out(repeat: bool) -> None:
    def rule(chances: list[Fraction], rng: np.random.Generator) -> list[Fraction]:
        children = rng.permutation(len(chances))[: int(rng.integers(1, len(chances)))].tolist()
        return coin(chances, children * (1 + repeat))

    assert (worst(lambda target: as_step(target, rule)) > 0.1) == repeat
    if not repeat:
        assert worst(lambda target: as_step(target, rule)) == 0


@pytest.mark.parametrize("prune_below", [Fraction(0), Fraction(1, 4)], ids=["sound", "pruned"])
def test_rejection_with_confidence_pruning_is_found_out(prune_below: Fraction) -> None:
    def rule(chances: list[Fraction], rng: np.random.Generator) -> list[Fraction]:
        return rejection(chances, random_draft(rng, len(chances)), prune_below)

    found = worst(lambda target: as_step(target, rule))
    assert found > 0.05 if prune_below else found == 0


@pytest.mark.parametrize("renormalise", [True, False], ids=["sound", "as it stands"])
def test_a_residual_that_is_not_renormalised_is_found_out(renormalise: bool) -> None:
    def rule(chances: list[Fraction], rng: np.random.Generator) -> list[Fraction]:
        return rejection(chances, random_draft(rng, len(chances)), renormalise=renormalise)

    found = worst(lambda target: as_step(target, rule))
    assert found == 0 if renormalise else found > 0.05


@pytest.mark.parametrize("margin", [1.0, 0.5])
def test_a_margin_below_one_is_found_out(margin: float) -> None:
    found = worst(lambda target: Production(target, margin=margin))
    assert found == 0 if margin == 1 else found > 0.05
