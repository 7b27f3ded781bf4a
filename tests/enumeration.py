"""Proof by enumeration that the production walk keeps the target's law, in exact arithmetic.

A case is a target with rational probabilities that hang on the whole text, and a tree for every
text: random, pruned by its own draft probabilities, as a controller may do. All draws of all nodes
go through `engine.kernels.walk`, each with its exact weight, iteration after iteration until the
text has its length; what comes out is compared with the target's own law of texts.

Draws are either independent by node, or shared by all nodes of a depth, as keyed noise shares them.
How the draws of a real request come about is the sampler's matter and tested apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

import numpy as np

from engine.backends.protocol import Choices, new_choices
from engine.kernels.walk import walk
from engine.protocol import Bools, Floats, Ints, Limits
from engine.state import SlotState, TreeState, new_slots, new_trees

Text = tuple[int, ...]
Law = dict[Text, Fraction]
Step = Callable[[Text], Law]  # the law of what one iteration emits after a text

PARTS = 12  # probabilities are multiples of 1 / PARTS
DRAWS = 256  # most draws of one iteration
MOST_NODES = {2: 6, 3: 4, 4: 3}  # kept nodes by vocabulary, so that their draws fit
CANDIDATES, DEPTH = 9, 3


@dataclass(frozen=True)
class Target:
    """A random language model over a few tokens; its text ends at `length` or behind `stop`."""

    seed: int
    vocab: int
    length: int
    stop: int = -1
    rows: dict[Text, Ints] = field(default_factory=dict)

    def weights(self, text: Text) -> Ints:
        """Probabilities of the next token [vocab], times PARTS; zeros are common."""
        if text not in self.rows:
            rng = np.random.default_rng([self.seed, *text])
            shares = rng.dirichlet(np.full(self.vocab, 0.7))
            self.rows[text] = rng.multinomial(PARTS, shares)
        return self.rows[text]

    def ended(self, text: Text) -> bool:
        """Whether nothing follows."""
        return len(text) == self.length or (bool(text) and text[-1] == self.stop)

    def ordinary(self, text: Text) -> Law:
        """Ordinary decoding: one token an iteration."""
        return {(t,): Fraction(int(w), PARTS) for t, w in enumerate(self.weights(text)) if w}


def law_of_text(target: Target, step: Step) -> Law:
    """Law of the whole text when `step` is repeated until the text has ended."""
    law: Law = {}
    running: Law = {(): Fraction(1)}
    while running:
        text = min(running, key=len)  # all that leads to it has been seen
        weight = running.pop(text)
        for fresh, chance in step(text).items():
            after = text + fresh
            where = law if target.ended(after) else running
            where[after] = where.get(after, Fraction(0)) + weight * chance
    return law


def total_variation(one: Law, other: Law) -> Fraction:
    """Half the sum of all differences."""
    zero = Fraction(0)
    return sum((abs(one.get(t, zero) - other.get(t, zero)) for t in {*one, *other}), zero) / 2


@cache
def _scratch() -> tuple[SlotState, TreeState, Choices]:
    """Engine state in which every slot is one draw."""
    limits = Limits(slots=DRAWS, max_depth=DEPTH, max_width=2, max_nodes=CANDIDATES)
    return new_slots(1, limits, 8), new_trees(1, limits), new_choices(1, limits)


@dataclass(frozen=True)
class Production:
    """One iteration of the production walk, over all draws, with a tree of its own a text."""

    target: Target
    shared: bool = False
    """Whether the nodes of a depth share their draw."""
    margin: float = 1.0

    def __call__(self, text: Text) -> Law:
        """Law of the emitted tokens."""
        target, rng = self.target, np.random.default_rng([self.target.seed, 7, *text])
        parent, depth, token, probability = _random_tree(rng, target.vocab)
        kept = _prune(rng, parent, probability, MOST_NODES[target.vocab])
        nodes = [-1, *np.flatnonzero(kept).tolist()]
        weights = np.array([target.weights(text + _path(n, parent, token)) for n in nodes])
        if self.shared:
            levels = np.array([0 if n < 0 else depth[n] for n in nodes])
            drawn, chance, whole = _shared_draws(weights, levels)
        else:
            drawn, chance, whole = _independent_draws(weights)

        slots, trees, choices = _scratch()
        count = len(chance)
        decoding = np.zeros((1, DRAWS), np.bool_)
        decoding[0, :count] = True
        slots.max_tokens[:], slots.emitted[:] = target.length, len(text)
        slots.stop[:] = -1
        slots.stop[..., 0] = target.stop
        trees.size[:], trees.kept[:] = len(parent), False
        drawn_tree = {
            "parent": parent,
            "depth": depth,
            "token": token,
            "probability": probability,
            "kept": kept,
        }
        for name, values in drawn_tree.items():
            getattr(trees, name)[0, :, : len(parent)] = values
        choices.root_token[0, :count] = drawn[:, 0]
        choices.node_token[0][:count, nodes[1:]] = drawn[:, 1:]
        choices.log_ratio[0, :count] = rng.choice(
            [-np.inf, -0.3, 0.0, 0.5]
        )  # a margin of 1 is deaf
        if self.margin < 1.0:
            _judge(choices.log_ratio[0], nodes, parent, token, weights, drawn)
        margin = np.full((1, DRAWS), self.margin)
        walk(decoding, choices, margin, slots, trees)

        fresh, length = trees.new_tokens[0, :count], trees.accepted_length[0, :count]
        digits = np.where(np.arange(fresh.shape[1]) < length[:, None], fresh + 1, 0)
        code = digits @ 5 ** np.arange(fresh.shape[1])  # tells texts of up to four tokens apart
        _, first, group = np.unique(code, return_index=True, return_inverse=True)
        parts = np.zeros(len(first), np.int64)
        np.add.at(parts, group, chance)
        return {
            tuple(fresh[i, : length[i]].tolist()): Fraction(part, whole)
            for i, part in zip(first.tolist(), parts.tolist(), strict=True)
            if part
        }


def _random_tree(rng: np.random.Generator, vocab: int) -> tuple[Ints, Ints, Ints, Floats]:
    """Candidates: parent, depth, token, path probability; siblings may repeat a token."""
    size = int(rng.integers(0, CANDIDATES + 1))
    parent, depth = np.full(size, -1), np.ones(size, np.int64)
    probability = rng.random(size)
    for i in range(size):
        above = int(rng.integers(-1, i))
        if above >= 0 and depth[above] < DEPTH:
            parent[i], depth[i] = above, depth[above] + 1
            probability[i] *= probability[above]
    return parent, depth, rng.integers(0, vocab, size), probability


def _prune(rng: np.random.Generator, parent: Ints, probability: Floats, most: int) -> Bools:
    """Drop nodes by draft confidence, and some at random, until at most `most` are left."""
    kept = np.zeros(len(parent), np.bool_)
    threshold = rng.choice([0.0, 0.1, 0.4])
    for i, above in enumerate(parent.tolist()):
        rooted = above < 0 or kept[above]
        kept[i] = rooted and probability[i] >= threshold and rng.random() < 0.85
        kept[i] &= kept.sum() <= most
    return kept


def _path(node: int, parent: Ints, token: Ints) -> Text:
    """Tokens from the root's children down to a node."""
    return () if node < 0 else (*_path(int(parent[node]), parent, token), int(token[node]))


def _independent_draws(weights: Ints) -> tuple[Ints, Ints, int]:
    """Every combination of tokens [draws, nodes], its weight, and the sum of weights."""
    nodes, vocab = weights.shape
    drawn = np.indices((vocab,) * nodes).reshape(nodes, -1).T
    chance = np.prod(weights[np.arange(nodes), drawn], axis=1)
    return drawn, chance, PARTS**nodes


def _shared_draws(weights: Ints, level: Ints) -> tuple[Ints, Ints, int]:
    """The same where one number of [0, PARTS) a depth is turned into a token by every node."""
    ends = weights.cumsum(1)
    cuts = [
        np.array(sorted({0, *ends[level == d].ravel().tolist()})) for d in range(level.max() + 1)
    ]
    picks = np.indices([len(cut) - 1 for cut in cuts]).reshape(len(cuts), -1)
    drawn, chance = np.empty((picks.shape[1], len(weights)), np.int64), 1
    for d, cut in enumerate(cuts):
        nodes = np.flatnonzero(level == d)
        tokens = (ends[nodes, :, None] <= cut[:-1]).sum(1)  # of each node in each interval
        drawn[:, nodes] = tokens[:, picks[d]].T
        chance = chance * np.diff(cut)[picks[d]]
    return drawn, np.asarray(chance), PARTS ** len(cuts)


def _judge(
    log_ratio: Floats, nodes: list[int], parent: Ints, token: Ints, weights: Ints, drawn: Ints
) -> None:
    """Log probability of every child over that of the token drawn at its parent."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(weights)
        for child in nodes[1:]:
            above = nodes.index(int(parent[child]))
            log_ratio[: len(drawn), child] = (
                logs[above, token[child]] - logs[above, drawn[:, above]]
            )


def random_target(seed: int) -> Target:
    """A target of two to four tokens, whose texts have two to four; every third knows a stop."""
    rng = np.random.default_rng(seed)
    vocab = int(rng.integers(2, 5))
    length = int(rng.integers(2, 5 if vocab == 2 else 4))
    return Target(seed, vocab, length, int(rng.integers(vocab)) if rng.random() < 1 / 3 else -1)


def enumerate_cases(count: int, seed: int) -> tuple[int, Fraction]:
    """Run `count` random cases; their number, and the largest total variation among them."""
    largest = Fraction(0)
    for number in range(count):
        target = random_target(seed * 1_000_003 + number)
        step = Production(target, shared=number % 2 == 1, margin=1.0 + number % 3)
        law = law_of_text(target, step)
        largest = max(largest, total_variation(law, law_of_text(target, target.ordinary)))
    return count, largest
