"""The random schedules once more, every pass that a graph serves replayed from the tape.

Target and drafters share one pool of graphs. What their texts are held to comes from the CPU's own
attention, and from no cache, no padding and no graph.
"""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import numpy as np
import torch

from models.flashinfer_attention import FlashInferAttention
from models.graph_interpreter import TapeCapturer
from models.graph_tiers import GraphTiers
from models.graphed import GraphedDecoder, GraphedHead
from models.pass_graphs import GraphPool
from tests import random_schedules
from tests.random_schedules import Variant, answer, draw_requests, run_schedules

TIERS = GraphTiers(requests=(1, 2, 4), tokens=(1, 4, 12, 44), tree_tokens=11)


def run_graphed_schedules(
    count: int, seed: int, memory_bytes: int = 2**30, tiers: GraphTiers = TIERS
) -> dict[str, int]:
    """`tests.random_schedules.run_schedules` on graphs; its counts, and those of the pool.

    Raises AssertionError where a text is not the CPU's.
    """
    answer(draw_requests(np.random.default_rng(0))[0])  # the CPU's answers, all of them
    capturer = TapeCapturer()
    pool = GraphPool(capturer, memory_bytes)
    target, model, head = (
        GraphedDecoder(random_schedules.target(), pool, tiers),
        GraphedDecoder(random_schedules.draft_model(), pool, tiers),
        GraphedHead(random_schedules.draft_head(), pool, tiers),
    )
    for network in (target, model, head):
        network.attention = FlashInferAttention(capturer, torch.device("cpu"), workspace_bytes=16)
    one = random_schedules.run_schedule

    def anew(variant: Variant, rng: np.random.Generator) -> Counter[str]:
        """Every schedule has caches of its own, so the graphs are made anew."""
        for network in (target, model, head):
            network.graphs.give_up()
        return one(variant, rng)

    with (
        patch.object(random_schedules, "run_schedule", anew),
        patch.object(random_schedules, "target", lambda: target),
        patch.object(random_schedules, "draft_model", lambda: model),
        patch.object(random_schedules, "draft_head", lambda: head),
    ):
        counts = run_schedules(count, seed)
    eager = {f"eager: {reason}": passes for reason, passes in pool.eager_passes.items()}
    return {**counts, **eager, "captures": pool.captures, "replays": pool.replays}
