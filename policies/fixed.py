"""Controllers that never change their mind: ordinary decoding, a chain, EAGLE-3's beam tree.

They are the baselines (ALGORITHMS.md §4). What lies outside the engine's limits is clipped and
counted by the engine, not here.
"""

from __future__ import annotations

from engine.protocol import Controller, Plan, View, uniform_plan
from policies.parameters import check_whole


class FixedTree(Controller):
    """The same tree for every request in every iteration."""

    def __init__(self, name: str, depth: int, width: int, nodes: int) -> None:
        """Depth in draft steps (0: no speculation), beam width, nodes kept without the root."""
        check_whole(name, 0, depth=depth)
        check_whole(name, 1, width=width, nodes=nodes)
        self.name = name
        self.depth = depth
        self.width = width
        self.nodes = nodes

    def plan(self, view: View) -> Plan:
        """The same plan whatever the view says."""
        return uniform_plan(view.limits, self.depth, self.width, self.nodes)


class Autoregressive(FixedTree):
    """Ordinary decoding: one token a request and iteration."""

    def __init__(self) -> None:
        """No parameters."""
        super().__init__("autoregressive", depth=0, width=1, nodes=1)


class Chain(FixedTree):
    """`k` drafted tokens in a row, all verified."""

    def __init__(self, k: int = 4) -> None:
        """k: draft steps, at least 1."""
        check_whole("chain", 1, k=k)
        super().__init__(f"chain({k})", depth=k, width=1, nodes=k)


class Eagle3(FixedTree):
    """EAGLE-3's tree: a beam of `width` over `depth` steps, the best `nodes` of it verified."""

    def __init__(self, depth: int = 6, width: int = 8, nodes: int = 32) -> None:
        """Draft steps, beam width, nodes kept without the root; each at least 1."""
        check_whole("eagle3", 1, depth=depth)
        super().__init__(f"eagle3({depth},{width},{nodes})", depth, width, nodes)


class CappedTree(FixedTree):
    """A fixed tree and a batch cap: what an operator sets who tunes both once.

    The strongest controller that decides nothing; whoever decides should be better than it.
    """

    def __init__(self, depth: int = 2, width: int = 1, nodes: int = 2, batch: int = 4) -> None:
        """As `FixedTree`, and how many requests may hold a slot at a time."""
        check_whole("capped-tree", 1, batch=batch)
        super().__init__(f"capped-tree({depth},{width},{nodes},{batch})", depth, width, nodes)
        self.batch = batch

    def plan(self, view: View) -> Plan:
        """The tree, for no more than `batch` requests at once."""
        return super().plan(view)._replace(max_running=self.batch)
