"""The trees of many places, drawn by the model and kept by the recorder's own rules.

One batch of places after another; which texts they belong to is `texts.py`'s business.
"""

from __future__ import annotations

import numpy as np

from engine.backends.protocol import Children
from engine.kernels.beam import new_beam
from engine.kernels.union_beam import grow_union, new_widths, union_limits
from engine.protocol import Bools, Floats, Ints
from engine.replay.kept_nodes import KeptNodes, keep_nodes, new_kept
from engine.replay.synthetic.children import LEAST, draw_children, mark_path
from engine.replay.synthetic.model import SIBLINGS, Tier, top_mean
from engine.state import new_trees

PLACES_AT_ONCE = 64
NODE_FIELDS = ("parent", "depth", "widths", "token", "probability", "log_ratio")


class TreeDrawing:
    """Draws trees for every width up to `most.width` at once; the scratch it draws in.

    `lost` counts nodes for which a place had no room, as a recorder does.
    """

    def __init__(self, most: Tier, vocab_size: int, decay: float, odds_factor: float) -> None:
        """`most` are the limits of the recording."""
        self.most, self.vocab_size = most, vocab_size
        self.lost = 0
        self.decay, self.odds_factor = decay, odds_factor
        limits = union_limits(PLACES_AT_ONCE, most.depth, most.width)
        self.room = limits.max_width
        self.trees, self.beam = new_trees(1, limits), new_beam(1, limits)
        self.widths, self.kept = new_widths(1, limits), new_kept(PLACES_AT_ONCE)
        shape = (1, PLACES_AT_ONCE, self.room, most.width)
        self.children = Children(np.zeros(shape, np.int64), np.zeros(shape))
        nodes = (PLACES_AT_ONCE, limits.max_candidates)
        self.on_path, self.log_ratio = np.zeros(nodes, np.bool_), np.zeros(nodes)
        self.siblings = np.array(SIBLINGS[: most.width - 1])

    def draw(
        self, level: Floats, truth: Floats, targets: Ints, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Nodes of P places behind one another, by field; also `size`, `entropy`, `divergence` [P].

        `level` [P] is the mean of q1 at depth 1, `truth` [P] a factor on acceptance of which the
        drafter shows nothing, `targets` [P, D] the text's tokens behind each root, -1 for none.
        """
        parts = []
        for first in range(0, len(level), PLACES_AT_ONCE):
            batch = slice(first, first + PLACES_AT_ONCE)
            parts.append(self._batch(level[batch], truth[batch], targets[batch], rng))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _batch(
        self, level: Floats, truth: Floats, targets: Ints, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        n = len(level)
        alive = np.arange(PLACES_AT_ONCE)[None] < n
        trees, beam, on_path = self.trees, self.beam, self.on_path
        entropy = divergence = np.empty(0)
        for step in range(1, self.most.depth + 1):
            target = np.ascontiguousarray(targets[:, step - 1])
            draw_children(
                step,
                top_mean(level, self.decay, step),
                self.odds_factor,
                self.siblings,
                rng.random((n, self.room)),
                rng.random(n) / truth,
                target,
                self.vocab_size,
                trees,
                beam,
                on_path,
                *self.children,
            )
            if step == 1:
                shown = self.children.probability[0, :n, 0]
                right = self.children.token[0, :n, 0] == target[:, None]
                entropy, divergence = _entropy(shown), _divergence(shown, right)
            grow_union(step, alive, *self.children, trees, beam, self.widths)
            mark_path(step, target, trees, on_path, self.log_ratio)
        self.lost += keep_nodes(
            n, *self.most, trees, self.widths, on_path, self.log_ratio, self.kept
        )
        return {**_flattened(self.kept, n), "entropy": entropy, "divergence": divergence}


def _entropy(shown: Floats) -> Floats:
    """Nats [n] of the shown children [n, W], what remains counted as one token."""
    p = np.concatenate([shown, _rest(shown)], axis=1)
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    return -(p * logs).sum(1)


def _divergence(shown: Floats, right: Bools) -> Floats:
    """Nats [n] from a target that is sure of its token: `right` [n, W] marks it among the children.

    Of the target the model knows its token and no distribution. What remains counts as one token,
    the target's where no child is.
    """
    p = np.where(right.any(1), (shown * right).sum(1), _rest(shown)[:, 0])
    return -np.log(np.clip(p, LEAST, 1.0))


def _rest(shown: Floats) -> Floats:
    """What the shown children [n, W] leave, [n, 1]."""
    return np.maximum(1.0 - shown.sum(1, keepdims=True), 0.0)


def _flattened(kept: KeptNodes, count: int) -> dict[str, np.ndarray]:
    real = np.arange(kept.parent.shape[1]) < kept.size[:count, None]
    nodes = {name: getattr(kept, name)[:count][real] for name in NODE_FIELDS}
    return {"size": kept.size[:count].copy(), **nodes}
