"""AdaptiveSpec: trees that follow confidence and agreement, and a margin for near misses.

The paper's text and code were not to be found (research/engines.md §1.1). Known are the two axes:
a mismatched draft token passes where p_target(token) / p_target(top-1) reaches a threshold, and
depth, width and nodes are resized in every step by a signal fused of the drafter's top-1 confidence
and a rolling record of its agreement with the target. Formulas and all constants are *ours*
(ALGORITHMS.md §6), each a parameter:

    c_r = drafter's top-1 probability at the request's last root
    a_r ← 0.8 a_r + 0.2 · accepted / proposed depth, started from the batch's average of the same
    s_r = ω c_r + (1 − ω) a_r, ω = 0.5
    depth, width, nodes = low + round(s_r · (high − low)), each with its own two ends
    margin m = 0.6

A request that was never drafted for has no c_r: the mean of the others stands in, or a_r where
there are none. In the first 10 iterations that draft, everybody gets the static tree. What the
margin lets through counts as accepted.

The margin's guard, that a token be among the target's top K, is a sampling parameter of the request
(`SamplingParams.margin_guard`, 10 by default) and no part of a plan: what it says there holds, and
who wants the top 3 of ALGORITHMS.md §6 asks for it there. Published are a ratio of 0.5 with top 3
and of 0.7 with top 10.

Probe rule after depth 0: the default ends draft one step at least, so evidence never dries up. With
a lower end of 0, or where the engine could not draft, a_r and c_r stay as they were; a request for
which nothing has been offered for `probe` iterations (8) gets one drafted token.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from engine.errors import UserError
from engine.kernels.tree_sizes import feed_shares, tree_sizes
from engine.protocol import Controller, Floats, Limits, Outcome, Plan, View, uniform_plan
from policies.fixed import FixedTree
from policies.per_request import PerRequest
from policies.spelling import spelled
from policies.tunable import Declared, Tunable

Ends = tuple[int, int]
"""What is planned at a signal of 0 and of 1."""
Tree = tuple[int, int, int]
"""Depth, width, nodes."""

MARGIN, WEIGHT, MEMORY = 0.6, 0.5, 0.8
DEPTH, WIDTH, NODES = (1, 8), (1, 8), (1, 64)
STATIC = (6, 8, 32)  # `eagle3`'s
WARM_UP, PROBE = 10, 8  # iterations
STATIC_RANGES = (
    Tunable(1, 8, whole=True),
    Tunable(1, 8, whole=True),
    Tunable(1, 64, log=True, whole=True),
)


class Rows(NamedTuple):
    """What is known of each request."""

    agreement: Floats  # [S] a, NaN where nothing is known yet


def rolled(average: float, fresh: float, memory: float) -> float:
    """A rolling average with one number more; NaN begins with it. `memory` is the past's weight."""
    return fresh if math.isnan(average) else memory * average + (1.0 - memory) * fresh


class AdaptiveSpec(Controller):
    """Both axes: trees by confidence and agreement, and the margin."""

    lossless = False  # by the default margin

    TUNABLE: ClassVar[Declared] = {
        "margin": Tunable(0.3, 1.0, lossy=True),
        "weight": Tunable(0.0, 1.0),
        "memory": Tunable(0.0, 0.98),
        "depth": (Tunable(0, 4, whole=True), Tunable(1, 8, whole=True)),
        "width": (Tunable(1, 4, whole=True), Tunable(1, 8, whole=True)),
        "nodes": (Tunable(1, 16, True, whole=True), Tunable(1, 64, True, whole=True)),
        "static": STATIC_RANGES,
        "warm_up": Tunable(1, 40, log=True, whole=True),
        "probe": Tunable(1, 64, log=True, whole=True),
    }

    def __init__(
        self,
        margin: float = MARGIN,
        weight: float = WEIGHT,
        memory: float = MEMORY,
        depth: Ends = DEPTH,
        width: Ends = WIDTH,
        nodes: Ends = NODES,
        static: Tree = STATIC,
        warm_up: int = WARM_UP,
        probe: int = PROBE,
    ) -> None:
        """Names and defaults as at the top; `static` is the tree of the warm-up.

        Ends may fall (a wider tree for a drafter less sure). Raises UserError.
        """
        self.name = spelled(
            "adaptivespec", AdaptiveSpec, margin=margin, weight=weight, memory=memory, depth=depth,
            width=width, nodes=nodes, static=static, warm_up=warm_up, probe=probe,
        )  # fmt: skip
        check_margin(self.name, margin)
        for label, share in (("weight", weight), ("memory", memory)):
            if not 0.0 <= share <= 1.0:
                raise UserError(f"{self.name}: {label} is {share!r}; expected a number of [0, 1]")
        _check_sizes(self.name, "depth", depth, 2, least=0)
        _check_sizes(self.name, "width", width, 2, least=1)
        _check_sizes(self.name, "nodes", nodes, 2, least=1)
        _check_sizes(self.name, "static", static, 3, least=1)
        for label, count in (("warm_up", warm_up), ("probe", probe)):
            if type(count) is not int or count < 1:
                raise UserError(
                    f"{self.name}: {label} is {count!r}; expected iterations, at least 1"
                )
        self.margin, self.weight, self.memory = margin, weight, memory
        self.depth, self.width, self.nodes, self.static = depth, width, nodes, static
        self._ends = np.array([depth, width, nodes]).T.copy()  # [2, 3]
        self.warm_up, self.probe = warm_up, probe
        self.lossless = margin >= 1.0
        self.reset(Limits())

    def reset(self, limits: Limits) -> None:
        """No request is known, and the warm-up is to come."""
        self.requests = PerRequest(Rows(np.zeros(limits.slots)))
        self.agreement = math.nan
        """Of the batch."""
        self.drafted = 0  # iterations that drafted
        # The first calls load the kernels, which must not be charged to a decision.
        nothing, none = np.zeros((1, 1)), np.zeros((1, 1), np.bool_)
        feed_shares(none[0], none, none, self.memory, nothing[0])
        whole = np.zeros(1, np.int64)
        tree_sizes(nothing[0], nothing[0], self.weight, self._ends, self._ends[0], whole, 1)

    def plan(self, view: View) -> Plan:
        """A tree for each request by its own signal."""
        rows = self.requests.recall(view, (self.agreement,))
        limits = view.limits
        static = uniform_plan(limits, *_within(self.static, limits), margin=self.margin)
        if self.drafted < self.warm_up or math.isnan(self.agreement):
            return static
        strange = ~self.requests.here() | np.isnan(rows.agreement)
        agreement = np.where(strange, self.agreement, rows.agreement)
        depth, width, nodes = tree_sizes(
            self._confidence(view),
            agreement,
            self.weight,
            self._ends,
            np.array([limits.max_depth, limits.max_width, limits.max_nodes]),
            view.since_proposed[:, 0].copy(),  # a column is of another type than the warm-up's
            self.probe,
        )
        return static._replace(depth=depth, width=width, nodes=nodes)

    def _confidence(self, view: View) -> Floats:
        """c [S], the others' mean where the drafter has not spoken yet; NaN where it never has."""
        known = view.active & (view.draft_confidence > 0)
        spoken = view.draft_confidence[known]
        mean = float(spoken.sum()) / len(spoken) if len(spoken) else math.nan
        return np.where(known, view.draft_confidence, mean)

    def observe(self, outcome: Outcome) -> None:
        """Shares of the proposed depth that were accepted go into the averages."""
        total, count = feed_shares(
            self.requests.here(),
            outcome.proposed,
            outcome.accepted,
            self.memory,
            self.requests.rows.agreement,
        )
        if count:
            self.agreement = rolled(self.agreement, total / count, self.memory)
            self.drafted += 1
        self.requests.forget(outcome)


class AdaptiveSpecTree(AdaptiveSpec):
    """The tree policy alone, without a margin: lossless."""

    lossless = True

    def __init__(
        self,
        weight: float = WEIGHT,
        memory: float = MEMORY,
        depth: Ends = DEPTH,
        width: Ends = WIDTH,
        nodes: Ends = NODES,
        static: Tree = STATIC,
        warm_up: int = WARM_UP,
        probe: int = PROBE,
    ) -> None:
        """As `AdaptiveSpec`'s."""
        super().__init__(1.0, weight, memory, depth, width, nodes, static, warm_up, probe)
        self.name = spelled(
            "adaptivespec-tree", AdaptiveSpecTree, weight=weight, memory=memory, depth=depth,
            width=width, nodes=nodes, static=static, warm_up=warm_up, probe=probe,
        )  # fmt: skip


class AdaptiveSpecMargin(FixedTree):
    """The margin alone, on a tree that never changes."""

    lossless = False  # by the default margin

    TUNABLE: ClassVar[Declared] = {"margin": Tunable(0.3, 1.0, lossy=True), "static": STATIC_RANGES}

    def __init__(self, margin: float = MARGIN, static: Tree = STATIC) -> None:
        """`static`: depth, width and nodes of the tree."""
        name = spelled("adaptivespec-margin", AdaptiveSpecMargin, margin=margin, static=static)
        check_margin(name, margin)
        _check_sizes(name, "static", static, 3, least=1)
        super().__init__(name, *static)
        self.margin, self.lossless = margin, margin >= 1.0

    def plan(self, view: View) -> Plan:
        """The tree, cut to the engine's limits, and the margin."""
        tree = _within((self.depth, self.width, self.nodes), view.limits)
        return uniform_plan(view.limits, *tree, margin=self.margin)


def check_margin(name: str, margin: float) -> None:
    """Raise UserError for a margin that the engine would refuse."""
    if not 0.0 < margin < float("inf"):
        raise UserError(
            f"{name}: margin is {margin!r}; expected a ratio above 0, from 1 on lossless"
        )


def _check_sizes(name: str, label: str, sizes: tuple[int, ...], count: int, least: int) -> None:
    if (
        not isinstance(sizes, tuple)
        or len(sizes) != count
        or any(type(size) is not int or size < least for size in sizes)
    ):
        raise UserError(
            f"{name}: {label} is {sizes!r}; expected {count} whole numbers of at least {least}"
        )


def _within(tree: Tree, limits: Limits) -> Tree:
    depth, width, nodes = tree
    return (
        min(depth, limits.max_depth),
        min(width, limits.max_width),
        min(nodes, limits.max_nodes),
    )
