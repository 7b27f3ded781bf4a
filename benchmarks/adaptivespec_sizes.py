"""Which fixed tree, and which sizes of AdaptiveSpec's, are the fastest here: who contends on live.

All are chosen alike: whoever emits the most tokens a second on prompts that are not reported. Each
of the three modes has what is best for it, since what a margin lets through makes deeper trees pay;
at every margin both axes have the sizes that are best at the default one. AdaptiveSpec's own
constants were not to be found, and its defaults are for a card (`policies.adaptivespec`): 64 nodes
cost two cores many times what they bring.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.bench import Bench, Prompts
from benchmarks.decoding import requests_of, serve
from benchmarks.speed import BATCH_TREES, QUICK_BATCH_TREES, QUICK_TREES, TREES
from policies import registry
from policies.fixed import FixedTree

TREE, MARGIN, BOTH = "adaptivespec-tree", "adaptivespec-margin", "adaptivespec"
CHOOSING = {1: 2, 8: 3}
"""Prompts of a set that are chosen on, by batch."""
TOKENS, QUICK_TOKENS = 64, 24
# Ends of depth, width and nodes, at a signal of 0 and of 1.
ALONE = (
    "depth=(1, 4), width=(1, 3), nodes=(1, 6)",
    "depth=(1, 6), width=(1, 1), nodes=(1, 6)",
    "depth=(2, 4), width=(1, 1), nodes=(2, 4)",
    "depth=(1, 6), width=(2, 2), nodes=(2, 8)",
    "depth=(2, 4), width=(2, 3), nodes=(3, 5)",
    "depth=(2, 5), width=(3, 2), nodes=(3, 8)",
    "depth=(2, 6), width=(2, 4), nodes=(2, 12)",
    "depth=(0, 6), width=(2, 2), nodes=(1, 8)",
)
TOGETHER = (
    "depth=(0, 2), width=(1, 1), nodes=(1, 2)",
    "depth=(0, 3), width=(1, 1), nodes=(1, 3)",
    "depth=(0, 6), width=(1, 1), nodes=(1, 6)",
    "depth=(1, 3), width=(1, 1), nodes=(1, 3)",
    "depth=(1, 4), width=(1, 2), nodes=(1, 4)",
    "depth=(0, 4), width=(1, 2), nodes=(1, 5)",
)


class Contenders(NamedTuple):
    """Controllers by what they are, each as `registry.make` takes it."""

    best: str
    """The best fixed tree."""
    tree: str
    """The tree of the best sizes, lossless."""
    margin: str
    """A margin alone, on the fixed tree that is best with it."""
    both: dict[float, str]
    """Both axes, by the margin."""

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return (self.best, self.tree, self.margin, *self.both.values())


def contenders(
    bench: Bench, prompts: Prompts, running: int, margins: tuple[float, ...]
) -> Contenders:
    """Choose on `prompts`, which are not reported; the last margin is that of the margin alone."""
    alone = QUICK_TREES if bench.quick else TREES
    together = QUICK_BATCH_TREES if bench.quick else BATCH_TREES
    fixed = alone if running == 1 else together
    best = _fastest(bench, list(fixed), prompts, running)
    sizes = list(ALONE if running == 1 else TOGETHER)[: 1 if bench.quick else None]
    resized = [f"{ends}, {_static(best)}" for ends in sizes]
    tree = _fastest(bench, [f"{TREE}({sized})" for sized in resized], prompts, running)
    let = f"margin={margins[-1]}"
    margin = _fastest(
        bench, [f"{MARGIN}({let}, {_static(spec)})" for spec in fixed], prompts, running
    )
    both = _fastest(bench, [f"{BOTH}({let}, {sized})" for sized in resized], prompts, running)
    return Contenders(
        best, tree, margin, {m: both.replace(f"{let},", f"margin={m},") for m in margins}
    )


def _static(spec: str) -> str:
    """A fixed tree as AdaptiveSpec's argument."""
    tree = registry.make(spec)
    assert isinstance(tree, FixedTree)
    return f"static=({tree.depth}, {tree.width}, {tree.nodes})"


def _fastest(bench: Bench, specs: list[str], prompts: Prompts, running: int) -> str:
    """Of the controllers the one with the most tokens a second, in full groups alone."""
    tokens = QUICK_TOKENS if bench.quick else TOKENS
    groups = [prompts[i : i + running] for i in range(0, len(prompts), running)]
    full = [group for group in groups if len(group) == running] or groups
    speed = {}
    for spec in specs:
        bench.say(f"batch {running}: choosing among {len(specs)}, {spec}")
        served = [
            serve(
                bench.server,
                requests_of(group, tokens, bench.stop_ids),
                registry.make(spec),
                running,
            )
            for group in full
        ]
        speed[spec] = sum(s.tokens for s in served) / sum(s.seconds for s in served)
    return max(speed, key=lambda spec: speed[spec])
