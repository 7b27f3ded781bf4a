"""Sequoia: the tree that dynamic programming finds best for acceptance by child rank.

Chen et al. 2024 (arXiv 2402.12374; Infini-AI-Lab/Sequoia, tree_search.py; research/slo_serving.md
§3.13). Let p_b be the chance that a node's b-th likeliest child is accepted if the node is. The
most tokens expected of a tree of m nodes in at most l layers, its root counted and with b children,
are

    T[m, l, b] = max over y of T[y, l, b − 1] + p_b · T[m − y, l − 1],   T[1, l, 0] = 1

T[m, l] the largest over b. Taken is the tree with the smallest seconds / T, for

    seconds = (l − 1) · draft step + verification

and verified of a candidate tree are the positions, by layer and child rank, that it has.

Theirs is found once, from a vector p measured beforehand and the times of one sequence, and their
search charges l draft steps. *Ours*: the tree is found again in every iteration, for the requests
that run (all get the same one, priced together by the hardware profile); where none pays, none is
drafted. `acceptance` may give p; without it, p is estimated while serving. A beam as wide as
`width` drafts the tree, so a node has at most so many children; where a layer has more inner nodes
than that, the beam expands the likeliest, and the positions below others are missing from the
verification.

The estimate: in the first 5 iterations and then in every 20th, everybody drafts one step and all of
its `width` children are verified. `Outcome.accepted_within` then tells exactly how often the
target's token was the first, the second, the third or fourth, …: tiers that hold several ranks are
shared in the proportions of the estimates. Counts decay by 0.9 a probe and begin as if 10 roots had
been seen with p_b = 0.5 · 0.3^(b − 1). Histories by depth (`View.accepted`) would not tell ranks
apart.

Probe rule after depth 0: the one above; the estimate comes from probes alone, drafts or no drafts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.errors import UserError
from engine.kernels.best_trees import best_trees
from engine.kernels.tree_positions import in_tree
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
from policies.step_prices import required_pricing, step_prices

DEPTH, WIDTH, NODES = 6, 4, 32
PROBE, WARM_UP, MEMORY, PRIOR = 20, 5, 0.9, 10.0
FIRST, RATIO = 0.5, 0.3  # of the estimate before anything was seen


class Table(NamedTuple):
    """What `best_trees` finds, by layers and nodes."""

    tokens: Floats
    children: Ints
    rest: Ints


class Tree(NamedTuple):
    """Positions of a tree, the root first and parents before children."""

    child: Ints  # [m + 1, B] position of each child by rank, -1 for none; the last row is all -1
    depth: int  # draft steps that it needs
    nodes: int  # the root not counted


def tree_of(table: Table, nodes: int, layers: int) -> Tree:
    """The best tree of so many nodes in so many layers, which must exist."""
    ranks = table.rest.shape[1] - 1
    child = np.full((nodes + 1, ranks), -1)
    open_ = [(0, nodes, layers, 0)]  # position, nodes and layers from there, depth
    deepest, known = 0, 1
    while open_:
        position, m, layer, depth = open_.pop()
        deepest = max(deepest, depth)
        for rank in range(int(table.children[layer, m]), 0, -1):
            left = int(table.rest[layer, rank, m])
            child[position, rank - 1] = known
            open_.append((known, m - left, layer - 1, depth + 1))
            m, known = left, known + 1
    return Tree(child, deepest, nodes - 1)


class Sequoia(Controller):
    """The best static tree for the acceptance and the batch at hand."""

    needs_profile = True

    def __init__(
        self,
        acceptance: tuple[float, ...] | None = None,
        depth: int = DEPTH,
        width: int = WIDTH,
        nodes: int = NODES,
        probe: int = PROBE,
    ) -> None:
        """p, or None to estimate it; most draft steps, children of a node, and nodes of a tree.

        `probe`: iterations from one probe to the next. Raises UserError.
        """
        self.name = spelled(
            "sequoia", Sequoia, acceptance=acceptance, depth=depth, width=width, nodes=nodes,
            probe=probe,
        )  # fmt: skip
        check_whole(self.name, 1, depth=depth, width=width, nodes=nodes, probe=probe)
        if acceptance is not None and not _are_chances(acceptance):
            raise UserError(
                f"{self.name}: acceptance is {acceptance!r}; expected chances by child rank, as in "
                "(0.6, 0.2, 0.1), at most 1 together"
            )
        self.given, self.depth, self.width, self.nodes = acceptance, depth, width, nodes
        self.probe = probe
        self.reset(Limits())

    def reset(self, limits: Limits) -> None:
        """Nothing was seen yet."""
        self._width = min(self.width, limits.max_width)
        self._layers = min(self.depth, limits.max_depth) + 1
        self._nodes = min(self.nodes, limits.max_nodes) + 1
        self._draft_steps, self._sizes = np.arange(self._layers), np.arange(1, self._nodes + 1)
        ranks = np.arange(self._width)
        first: Floats = FIRST * np.power(RATIO, ranks)
        if self.given is not None:
            first = np.array(self.given[: self._width])
        self._offered, self._accepted = PRIOR, PRIOR * first
        self._find()
        self.tree = Tree(np.full((2, len(first)), -1), 0, 0)
        self._plans = 0
        self._probing = False
        # The first call loads the kernel, which must not be charged to a decision.
        nobody, none = np.zeros(1, np.bool_), np.zeros(1, np.int64)
        in_tree(nobody, none, none[None], self.tree.child)

    @property
    def acceptance(self) -> Floats:
        """p, by child rank."""
        chances: Floats = self._accepted / self._offered
        return chances

    def _find(self) -> None:
        self._table = Table(*best_trees(self.acceptance, self._nodes, self._layers))
        self._trees: dict[tuple[int, int], Tree] = {}  # read off the table, by nodes and layers

    def plan(self, view: View) -> Plan:
        """The tree that pays best for those who run, or a probe."""
        self._plans += 1
        early = self._plans <= WARM_UP
        self._probing = self.given is None and (early or self._plans % self.probe == 0)
        if self._probing:
            nodes = min(self._width, self._nodes - 1)
            return uniform_plan(view.limits, 1, self._width, nodes)
        if view.active.any():
            self.tree = self._best_tree(view)
        return uniform_plan(view.limits, self.tree.depth, self._width, self.tree.nodes)

    def _best_tree(self, view: View) -> Tree:
        pricing = required_pricing(view, self.name)
        requests = int(np.count_nonzero(view.active))
        prices = step_prices(view, pricing, self._width)
        before_s = prices.before_verification_s(self._draft_steps)
        verify_s = pricing.verify_s(requests * self._sizes)
        seconds = before_s[:, None] + verify_s
        tokens = self._table.tokens[1:, 1:]  # from one layer and one node on
        layers, nodes = divmod(int((tokens / seconds).argmax()), self._nodes)
        size = nodes + 1, layers + 1
        if size not in self._trees:
            self._trees[size] = tree_of(self._table, *size)
        return self._trees[size]

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools:
        """The candidates that stand where the tree has a node; in a probe, all."""
        if self._probing:
            size = np.where(view.active, np.minimum(candidates.size, plan.nodes), 0)
            probed: Bools = np.arange(candidates.parent.shape[1]) < size[:, None]
            return probed
        return in_tree(view.active, candidates.size, candidates.parent, self.tree.child)

    def observe(self, outcome: Outcome) -> None:
        """After a probe: which child's token the target chose."""
        if not self._probing:
            return
        told = outcome.ran & outcome.proposed[:, 0] & ~outcome.finished
        roots = int(told.sum())
        if roots == 0:
            return
        within = (outcome.accepted_within[told, 1] > 1).sum(0)  # by tier: among so many likeliest
        fresh = shared_out(within, self.acceptance)
        self._offered = MEMORY * self._offered + roots
        self._accepted = MEMORY * self._accepted + fresh
        self._find()


def shared_out(within: Ints, acceptance: Floats) -> Floats:
    """How often each child [B] was the target's, from counts [tiers] among the likeliest few."""
    counts = np.zeros(len(acceptance))
    before, begun = 0, 0
    for tier, count in zip(NODE_TIERS, within.tolist(), strict=True):
        weights = acceptance[begun:tier]
        if len(weights) == 0:
            break
        total = float(weights.sum())
        share = weights / total if total > 0 else np.full(len(weights), 1 / len(weights))
        counts[begun:tier] = share * (count - before)
        before, begun = count, tier
    return counts


def _are_chances(acceptance: tuple[float, ...]) -> bool:
    return (
        isinstance(acceptance, tuple)
        and len(acceptance) > 0
        and all(isinstance(p, int | float) and 0.0 <= p <= 1.0 for p in acceptance)
        and sum(acceptance) <= 1.0 + 1e-9
    )
