"""Hedge: tree shapes as experts, judged by what they would have emitted of the verified tree.

A verified tree tells of every subtree of it what that one would have brought, so a shape need not
be played to be judged (HedgeSpec, arXiv 2510.20064, chooses drafters in this way; for trees see
research/rl_toolkits.md §2.4). An expert is a shape: depth, beam width, nodes. With its tokens x of
a request, and t the seconds of a step in which everybody has that shape, by the hardware profile,
its gain is

    x − ρ · t,   ρ the tokens a second that a request has been getting

which is largest for the shape with most tokens a second once ρ is the best rate that there is
(Dinkelbach 1967). Each SLO class has weights of its own. After every request that tells something

    w_e ← w_e · exp(rate · gain_e)        (Hedge, Freund & Schapire 1997)
    w_e ← (1 − share) · w_e + share / E   (fixed share, Herbster & Warmuth 1998)

so that the weights follow shifts. A class plays the shape of most weight, or with `sample` one that
it draws by weight, from a generator of its own seed. What is verified tells of all shapes within
it; those of which a request tells nothing sleep: they keep their weight, and the others share out
their own (Freund et al. 1997). Before anything is told a shape's weight is 1 / (1 + nodes).

Probe rule, after depth 0 and any other: in every `probe`-th iteration some requests, in turns,
draft and verify a union of subtrees: of all shapes of up to 1 step, 2, 4, … By the ruler's sequence
half of the probes are of the smallest union that is deeper than what is played, for every other
request, a quarter of the next, for every fourth, and so on: deep trees stay explored, and a probe
seldom costs much.

The bound, an expected regret of O(B √(T (k + 1) ln(E T))) against the best sequence of shapes with
k changes over T outcomes in a range B, holds for shapes that are sampled and gains that are all
known and do not lean on our own past draws. Here the leader plays, contexts and queues do lean on
what was played, a sleeping shape's bound is over the outcomes that told of it, ρ moves, and the
rates are constants. It is a reason, not a promise.

*Ours*: all of the above that is not cited. Exact are the tokens of a shape wherever one path alone
fits what an outcome tells of ranks; elsewhere they are the drafter's expectation over those that
fit (`engine.kernels.hedge_outcomes`). Requests that end tell nothing, since an answer's end is no
rejection. Catching up with a drafter that rested is priced as spread over 8 iterations. Slack is
not looked at: compare `slack-priced`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from engine.errors import UserError
from engine.kernels.hedge_outcomes import reweigh, subtree_tokens
from engine.kernels.hedge_plans import drawn_shapes, shape_seconds
from engine.kernels.hedge_subtrees import mark_subtrees
from engine.protocol import (
    NODE_TIERS,
    Bools,
    Candidates,
    Controller,
    Floats,
    Ints,
    Limits,
    Outcome,
    Plan,
    View,
    uniform_plan,
)
from policies.parameters import check_whole
from policies.spelling import spelled
from policies.step_prices import required_tables
from policies.tunable import Declared, Tunable

Shape = tuple[int, int, int]
"""Depth, beam width and nodes."""

SHAPES: tuple[Shape, ...] = (
    *((0, 1, 0), (1, 1, 1), (2, 1, 2), (3, 1, 3), (4, 1, 4), (6, 1, 6)),
    *((1, 4, 4), (2, 2, 4), (2, 4, 8), (3, 2, 6), (3, 4, 8), (3, 4, 16), (4, 4, 16), (6, 4, 32)),
)
RATE, SHARE, PROBE = 0.5, 0.01, 16
MOST_NODES = 512  # that are priced one by one, over the batch
MOST_SHAPES = 63  # a bit of a whole number each
CATCH_UP = 8.0  # iterations over which a drafter's catching up is spread
MEMORY, PRIOR = 0.95, 8.0  # of the rate ρ; iterations of ordinary decoding that it begins with


class Hedge(Controller):
    """The shape with most tokens for its time, by class, from what each would have brought."""

    needs_profile = True

    TUNABLE: ClassVar[Declared] = {
        "rate": Tunable(0.02, 2.0, log=True),
        "share": Tunable(0.0002, 0.05, log=True),
        "probe": Tunable(4, 64, log=True, whole=True),
    }

    def __init__(
        self,
        shapes: tuple[Shape, ...] = SHAPES,
        rate: float = RATE,
        share: float = SHARE,
        probe: int = PROBE,
        sample: bool = False,
        seed: int = 0,
    ) -> None:
        """Experts, learning rate per token, share, iterations from probe to probe.

        `sample` draws shapes by weight, with that seed, in place of the leader. Raises UserError.
        """
        self.name = spelled(
            "hedge", Hedge, shapes=shapes, rate=rate, share=share, probe=probe, sample=sample,
            seed=seed,
        )  # fmt: skip
        if not _are_shapes(shapes):
            raise UserError(
                f"{self.name}: shapes are {shapes!r}; expected 2 to {MOST_SHAPES} different ones, "
                "(0, 1, 0) first, then (depth, width, nodes) of at least 1 each"
            )
        if not 0.0 < rate < float("inf"):
            raise UserError(f"{self.name}: rate is {rate!r}; expected a number above 0")
        if not 0.0 < share < 1.0:
            raise UserError(f"{self.name}: share is {share!r}; expected a number between 0 and 1")
        check_whole(self.name, 1, probe=probe)
        check_whole(self.name, 0, seed=seed)
        self.shapes, self.rate, self.share = shapes, float(rate), float(share)
        self.probe, self.sample, self.seed = probe, sample, seed
        self.reset(Limits())

    def reset(self, limits: Limits) -> None:
        """Shapes are worth the less the more nodes they have, for all that is known."""
        most = np.array([limits.max_depth, limits.max_width, limits.max_nodes])
        self._shape = np.minimum(np.array(self.shapes), most)
        self._widths, beam = np.unique(self._shape[:, 1], return_inverse=True)
        self._beamed = np.stack([self._shape[:, 0], beam.ravel(), self._shape[:, 2]], axis=1)
        self._probes = probes_of(self._shape, limits.max_nodes)
        self.weights: Floats | None = None
        """[C, E] of each class, together 1; None before the first plan."""
        self._rng = np.random.default_rng(self.seed)
        self._iterations = self._probed = 0
        self._tokens = self._request_s = 0.0  # of ρ
        self._seconds = np.zeros(len(self.shapes))
        self._wanted, self._known, self._verified, self._deepest = (
            np.zeros(limits.slots, np.int64) for _ in range(4)
        )
        shape = limits.slots, limits.max_candidates
        self._member, self._rank = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._kept = np.zeros(shape, np.bool_)
        self._candidates: Candidates | None = None  # of the iteration under way
        _warm_up()

    def plan(self, view: View) -> Plan:
        """The shape that each class draws; for some requests of a probe, a union."""
        self._candidates = None
        if self.weights is None:
            prior = 1.0 / (1.0 + self._shape[:, 2])
            self.weights = np.tile(prior / prior.sum(), (len(view.class_names), 1))
            self._leads = np.full(len(view.class_names), -1.0)
        requests = int(np.count_nonzero(view.active))
        if requests:
            self._price(view, requests)
        scout, apart, probe = -1, 1, self._probes[0]
        if self._iterations % self.probe == 0:
            self._probed += 1
            level = (self._probed & -self._probed).bit_length() - 1
            leaders = self.weights[np.unique(view.slo_class[view.active])].argmax(1)
            shallowest = int(self._shape[leaders, 0].min(initial=self._shape[:, 0].max()))
            unions = [p for p in self._probes if p[1][0] > shallowest] or self._probes[-1:]
            level = min(level, len(unions) - 1)
            probe, apart = unions[level], min(2 << level, max(requests, 1))
            scout = self._probed % apart
        self._iterations += 1
        limits = view.limits
        plan = uniform_plan(limits, 0, 1, 0)
        drawn_shapes(
            view.active,
            view.slo_class,
            self.weights,
            self._rng.random(len(self.weights)) if self.sample else self._leads,
            self._shape,
            scout,
            apart,
            *probe,
            plan.depth,
            plan.width,
            plan.nodes,
            self._wanted,
        )
        np.maximum(view.remaining_tokens - 1, 0, out=self._deepest)
        return plan

    def _price(self, view: View, requests: int) -> None:
        """Seconds of a step of each shape."""
        nodes = min(requests * int(self._shape[:, 2].max()), MOST_NODES)
        table = required_tables(view, self.name).table(nodes, self._widths)
        if self._request_s == 0.0:
            self._tokens, self._request_s = PRIOR, PRIOR * float(table.ordinary_s[requests])
        shape_seconds(
            view.active,
            table.undrafted_tokens,
            self._beamed,
            table.verify_s,
            table.draft_first_s,
            table.draft_next_s,
            CATCH_UP,
            self._seconds,
        )

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools:
        """The subtree that is played, or the union of several."""
        self._kept = np.zeros(candidates.parent.shape, np.bool_)
        mark_subtrees(
            view.active,
            candidates.size,
            candidates.parent,
            candidates.depth,
            candidates.probability,
            plan.depth,
            plan.width,
            self._deepest,
            self._beamed,
            self._widths,
            self._wanted,
            view.limits.max_nodes,
            self._member,
            self._rank,
            self._kept,
            self._known,
            self._verified,
        )
        self._candidates = candidates
        return self._kept

    def observe(self, outcome: Outcome) -> None:
        """What every subtree that was verified would have emitted goes into the weights."""
        seconds, ran = outcome.iteration_s - outcome.prefill_s, outcome.ran
        requests = int(np.count_nonzero(ran))
        if self.weights is None or requests == 0 or seconds <= 0.0:
            return
        emitted = int(outcome.accepted_length.sum(where=ran))
        self._tokens = MEMORY * self._tokens + emitted / requests
        self._request_s = MEMORY * self._request_s + seconds
        candidates, self._candidates = self._candidates, None
        if candidates is None:  # somebody else chose the nodes
            return
        # Where memory was short, fewer were verified than chosen.
        told = ran & ~outcome.finished & (outcome.verified == self._verified)
        size, parent, depth, _, probability = candidates
        tokens = np.empty((len(ran), len(self.shapes)))
        subtree_tokens(
            told,
            outcome.accepted,
            outcome.accepted_within,
            TIERS,
            size,
            parent,
            depth,
            probability,
            self._kept,
            self._rank,
            self._member,
            tokens,
        )
        cost = self._tokens / self._request_s * self._seconds
        reweigh(
            told,
            outcome.slo_class,
            self._known,
            tokens,
            cost,
            self.rate,
            self.share,
            self.weights,
        )


def probes_of(shape: Ints, most: int) -> list[tuple[int, Ints]]:
    """Unions of the shapes [E, 3] of up to 1, 2, 4, … steps: bits, and what is drafted for them.

    The last is of all shapes; unions of the same shapes stand there once.
    """
    found: list[tuple[int, Ints]] = []
    cap = 1
    while not found or found[-1][0] != (1 << len(shape)) - 1:
        within = np.flatnonzero(shape[:, 0] <= cap)
        bits = sum(1 << e for e in within.tolist())
        depth, width, _ = shape[within].max(0).tolist()
        fresh = not found or found[-1][0] != bits
        if fresh and depth > 0:
            found.append((bits, np.array([depth, width, most])))
        cap *= 2
    return found


TIERS = np.array(NODE_TIERS)


def _are_shapes(shapes: tuple[Shape, ...]) -> bool:
    if not isinstance(shapes, tuple) or not 2 <= len(shapes) <= MOST_SHAPES:
        return False
    whole = all(
        isinstance(shape, tuple) and len(shape) == 3 and all(type(part) is int for part in shape)
        for shape in shapes
    )
    return (
        whole
        and shapes[0] == (0, 1, 0)
        and len(set(shapes)) == len(shapes)
        and all(min(shape) >= 1 for shape in shapes[1:])
    )


def _warm_up() -> None:
    """Load the kernels, which must not be charged to a decision."""
    nobody, whole = np.zeros(1, np.bool_), np.zeros(1, np.int64)
    trees, chances, kept = np.zeros((1, 1), np.int64), np.zeros((1, 1)), np.zeros((1, 1), np.bool_)
    shapes, one = np.zeros((1, 3), np.int64), np.zeros(1)
    written = [whole.copy() for _ in range(4)]
    shape_seconds(nobody, whole, shapes, np.zeros(2), np.zeros(2), np.zeros((1, 2)), 1.0, one)
    drawn_shapes(nobody, whole, np.ones((1, 1)), one, shapes, -1, 1, 1, shapes[0], *written)
    mark_subtrees(
        nobody, whole, trees, trees, chances, whole, whole, whole, shapes, whole + 1, whole, 1,
        trees.copy(), trees.copy(), kept, *written[:2],
    )  # fmt: skip
    subtree_tokens(
        nobody, kept, np.zeros((1, 2, 1), np.int64), TIERS, whole, trees, trees, chances, kept,
        trees, trees, chances.copy(),
    )  # fmt: skip
    reweigh(nobody, whole, whole, chances, one, 1.0, 0.5, np.ones((1, 1)))
