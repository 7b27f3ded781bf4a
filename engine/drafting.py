"""Between plan and verification: room for the trees, the draft steps, and which nodes are kept.

Memory is settled before anything is drafted (`engine.fitting`), so no later step can run out of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.backends.protocol import Backend
from engine.fitting import fit_plan, missing_for_roots, victim
from engine.kernels.beam import grow
from engine.kernels.select import close_under_parents, keep_best, rank_candidates
from engine.limits import mask_of
from engine.protocol import Bools, Candidates, Controller, Ints, Plan, View

if TYPE_CHECKING:
    from engine.loop import Engine


def make_room(
    engine: Engine, plan: Plan, controller: Controller, decoding: Bools
) -> tuple[Plan, Ints, int]:
    """Reserve this step's pages: the plan that fits, nodes [S] reserved, nodes given up for it.

    Where not even the roots fit, requests give their slots up and leave `decoding` [1, S].
    """
    slots, pool = engine.slots, engine.backend.pool
    context = slots.context[0]
    while missing_for_roots(context, pool, decoding[0]):
        slot = victim(engine.places(), pool)
        engine.take_slot(slot, displaced=True)
        decoding[0, slot] = False
    asked = plan
    if chooses(controller):  # it may keep any nodes, whatever its plan says
        asked = plan._replace(nodes=np.full_like(plan.nodes, engine.limits.max_nodes))
    fitted, shrunk = fit_plan(asked, context, pool, decoding[0])
    pool.reserve_all(np.where(decoding[0], context + 1 + fitted.nodes, 0))
    if asked is plan:
        return fitted, fitted.nodes, shrunk
    nodes = np.minimum(plan.nodes, fitted.nodes)
    # What the controller really loses is known when it has chosen.
    return fitted._replace(nodes=nodes), fitted.nodes, 0


def chooses(controller: Controller) -> bool:
    """Whether the controller selects nodes by itself."""
    return type(controller).select is not Controller.select


def draft(engine: Engine, view: View, plan: Plan, controller: Controller, decoding: Bools) -> float:
    """Grow candidate trees step by step; returns the time spent in `controller.extend`.

    A drafter may have run all steps before the first of them is grown here, unless the controller
    has a say between them.
    """
    engine.trees.size[:] = engine.trees.scored[:] = 0
    depth, width = plan.depth[None], plan.width[None]
    drafting = decoding & (depth >= 1)
    if not drafting.any():
        return 0.0
    asks = type(controller).extend is not Controller.extend
    controller_s = 0.0
    backend, slots, trees, beam = engine.backend, engine.slots, engine.trees, engine.beam
    ahead = None if asks else backend.draft_ahead(drafting, depth, width, slots)
    if ahead is None:
        backend.draft_first(drafting, slots, engine.children)
    else:
        ahead.write(1, engine.children)
    grow(1, drafting, width, *engine.children, trees, beam)
    for step in range(2, int(plan.depth.max()) + 1):
        drafting &= depth >= step
        if asks:
            begun = engine.read()
            answer = controller.extend(view, plan, step - 1, candidates(engine))
            controller_s += engine.read() - begun
            if answer is not None:
                drafting &= mask_of("extend", answer, plan.depth.shape)[None]
        beam.size[~drafting] = beam.width[~drafting] = 0
        if not drafting.any():
            break
        if ahead is None:
            backend.draft_next(step - 1, slots, trees, beam, engine.children)
        else:
            ahead.write(step, engine.children)
        grow(step, drafting, width, *engine.children, trees, beam)
    return controller_s


def draft_failures(backend: Backend) -> int:
    """Draft calls that raised, of all episodes on this backend; 0 where its drafter counts none."""
    return int(getattr(getattr(backend, "drafter", None), "failures", 0))


def select(
    engine: Engine,
    view: View,
    plan: Plan,
    controller: Controller,
    decoding: Bools,
    reserved: Ints,
) -> int:
    """Mark the kept nodes, at most `reserved` [S] of them; returns how many had to be dropped."""
    trees = engine.trees
    rank_candidates(decoding, trees)
    mask = controller.select(view, plan, candidates(engine)) if chooses(controller) else None
    if mask is None:
        budget = np.array([plan.node_budget])
        return int(keep_best(decoding, plan.nodes[None], budget, trees)[0])
    trees.kept[0] = mask_of("select", mask, trees.kept[0].shape)
    dropped = int(close_under_parents(decoding, engine.limits.max_nodes, trees)[0])
    kept = trees.kept[0]
    for slot in np.flatnonzero(decoding[0] & (kept.sum(1) > reserved)).tolist():
        # Ranks rise along a path, so the likeliest of a tree are a tree.
        nodes = np.flatnonzero(kept[slot])
        out = nodes[np.argsort(trees.rank[0, slot, nodes])][reserved[slot] :]
        kept[slot, out] = False
        dropped += len(out)
    return dropped


def candidates(engine: Engine) -> Candidates:
    """The drafted trees, as a controller sees them."""
    trees = engine.trees
    return Candidates(
        trees.size[0], trees.parent[0], trees.depth[0], trees.token[0], trees.probability[0]
    )
