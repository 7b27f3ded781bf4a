"""The parts of a step by size, asked of a profile pass by pass with NumPy."""

from __future__ import annotations

import numpy as np

from engine.profile.hardware_profile import HardwareProfile
from engine.protocol import PROMPT_CHUNKS, Bools, Ints, PriceTable


def price_table(
    profile: HardwareProfile,
    decoding: Bools,
    context_tokens: Ints,
    undrafted_tokens: Ints,
    nodes: int,
    widths: Ints,
) -> PriceTable:
    """As `BoundPricing.table`."""
    requests, kv_tokens = int(decoding.sum()), float(context_tokens[decoding].sum())
    tokens = requests + np.arange(nodes + 1)
    verify_s = profile.verify(tokens, kv_tokens, requests)
    host_s = profile.host(tokens, kv_tokens, requests)
    one, most = float(requests), float(max(undrafted_tokens.sum(), requests + 1))
    least_s, most_s = (profile.draft_first.at(rows, kv_tokens, requests) for rows in (one, most))
    row_s = max(most_s - least_s, 0.0) / (most - one)
    running = np.arange(len(decoding) + 1)
    contexts = running * (kv_tokens / max(requests, 1))
    watts = profile.watts(tokens)
    return PriceTable(
        verify_s=verify_s + host_s,
        verify_joules=watts * verify_s + (profile.power.idle_watts or watts[0]) * host_s,
        draft_first_s=np.array([least_s - row_s * one, row_s]),
        draft_next_s=profile.draft_next(np.outer(widths, running), contexts, running)
        * (running > 0),
        draft_watts=profile.power.stages.get("draft", float(watts[0])),
        undrafted_tokens=undrafted_tokens,
        ordinary_s=profile.verify(running, contexts, running)
        + profile.host(running, contexts, running),
        prefill_s=profile.prefill_s(PROMPT_CHUNKS, 0, False),
    )
