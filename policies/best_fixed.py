"""`best-fixed`: the fixed tree that a sweep finds best at the given load (ALGORITHMS.md §4).

It stands for what an operator reaches who tunes one setting for the expected load and leaves it
there. Here is only who serves with the tree; who sweeps, on training texts and seeds, is
`eval.best_fixed`, which `evaluate.py` calls before the first run.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.errors import UserError
from engine.protocol import Controller, Limits, Plan, View
from policies.delegate import Delegate
from policies.fixed import FixedTree


class BestFixed(Controller):
    """A fixed tree that is found later, or the one that was found before."""

    name = "best-fixed"

    def __init__(
        self, depth: int | None = None, width: int | None = None, nodes: int | None = None
    ) -> None:
        """Without a tree the sweep of a comparison finds one; with one, all three are needed."""
        self.tree: FixedTree | None = None
        if depth is None and width is None and nodes is None:
            return
        if depth is None or width is None or nodes is None:
            raise UserError(
                f"best-fixed: depth, width and nodes are {depth}, {width} and {nodes}; expected "
                "all three, or none to have the tree found"
            )
        self.settle(depth, width, nodes)

    def settle(self, depth: int, width: int, nodes: int) -> None:
        """Serve with this tree from now on. Raises UserError for one that is none."""
        self.tree = FixedTree(self.name, depth, width, nodes)

    def reset(self, limits: Limits) -> None:
        """A new episode begins. Raises UserError where no tree was found yet."""
        self._settled().reset(limits)

    def plan(self, view: View) -> Plan:
        """The tree's, whatever the view says."""
        return self._settled().plan(view)

    def _settled(self) -> FixedTree:
        if self.tree is None:
            raise UserError(
                "best-fixed has no tree yet: a comparison (evaluate.py) finds it at its load; "
                "elsewhere name the tree, as in best-fixed(depth=2, width=1, nodes=2)"
            )
        return self.tree


def awaiting(controllers: Iterable[Controller]) -> list[BestFixed]:
    """Those of the controllers, or of what they wrap, that still wait for their tree."""
    found = []
    for controller in controllers:
        while isinstance(controller, Delegate):
            controller = controller.controller
        if isinstance(controller, BestFixed) and controller.tree is None:
            found.append(controller)
    return found
