"""What a draft step costs, and what the engine itself adds around the networks."""

from __future__ import annotations

from statistics import median

import numpy as np

from benchmarks.bench import Bench
from benchmarks.decoding import decode_s, iterations, requests_of, start
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.network_clock import network_clock
from engine.protocol import Controller, Outcome, Plan, View, uniform_plan
from policies.registry import make

DEPTH = 6
BLOCKS = 40  # of one iteration each: no draft, one draft step, six
QUICK_BLOCKS = 10
SHARE_ALLOWED = 0.07  # of a one-token target step
WIDE = 8
TREE = "eagle3(3,4,8)"
BATCH = 16
FULL_ITERATIONS = 12
QUICK_FULL_ITERATIONS = 4
SKIPPED = 2  # first iterations of a run, in which shapes are met for the first time


class Depths(Controller):
    """Trees of one width whose depth follows a list, around and around."""

    name = "depths"

    def __init__(self, depths: list[int], width: int) -> None:
        self.depths, self.width, self.next = depths, width, 0
        self.planned: list[int] = []

    def plan(self, view: View) -> Plan:
        """The next depth; all that is drafted along the beam may be kept."""
        # Near the end of an answer the engine drafts less deep than asked.
        depth = self.depths[self.next % len(self.depths)]
        self.next += 1
        self.planned.append(min(depth, int(view.remaining_tokens[view.active].max()) - 1))
        return uniform_plan(view.limits, depth, self.width, DEPTH)


def draft_step(bench: Bench, name: str) -> Result:
    """Median length of a draft step after the first, batch 1, at depth 6.

    Iterations without drafts, with one draft step and with six follow one another in random
    order; five steps are what six cost more than one. The first step is another matter: it also
    catches up with the committed text.
    """
    narrow, target_s, count = draft_step_s(bench, name, width=1)
    wide, _, _ = draft_step_s(bench, name, width=WIDE)
    share = narrow / target_s
    return Result(
        value=1e3 * narrow,
        text=f"{1e3 * narrow:.2f} ms, {share:.1%} of {1e3 * target_s:.1f} ms",
        note=f"width 1; at width {WIDE} {1e3 * wide:.2f} ms, {wide / target_s:.1%}",
        meets_alternative=share <= SHARE_ALLOWED,
        raw={
            "step_ms": {"width_1": 1e3 * narrow, f"width_{WIDE}": 1e3 * wide},
            "one_token_target_step_ms": 1e3 * target_s,
            "share_of_target_step": share,
            "iterations_each": count,
            "dtype": str(bench.server.decoder.dtype),
        },
    )


def draft_step_s(bench: Bench, name: str, width: int) -> tuple[float, float, int]:
    """Seconds of a draft step and of a one-token target step, and how many of each were seen."""
    blocks = QUICK_BLOCKS if bench.quick else BLOCKS
    rng = bench.rng()
    depths = [d for _ in range(blocks) for d in rng.permutation([0, 1, DEPTH]).tolist()]
    outcomes: dict[int, list[Outcome]] = {0: [], 1: [], DEPTH: []}
    controller = Depths(depths, width)
    # Answers longer than a block needs, so that few iterations are cut by an answer's end.
    prompts = bench.prompts(name)[: max(2, blocks)]
    engine, driver = start(bench.server, requests_of(prompts, 3 * WIDE * DEPTH), controller, 1)
    for number, outcome in enumerate(iterations(engine, driver)):
        if number % 10 == 0:
            bench.say(f"draft step, width {width}: iteration {number + 1} of {len(depths)}")
        planned = controller.planned[-1]
        if number >= SKIPPED and planned in outcomes:
            outcomes[planned].append(outcome)
        if number + 1 >= len(depths) + SKIPPED:
            break
    counts = [len(found) for found in outcomes.values()]
    if min(counts) < 2:
        raise UnmeasuredError(f"{name}: too few iterations, {counts} at depths {list(outcomes)}")
    drafting = {depth: median(o.draft_s for o in found) for depth, found in outcomes.items()}
    step_s = (drafting[DEPTH] - drafting[1]) / (DEPTH - 1)
    return step_s, median(o.verify_s for o in outcomes[0]), min(counts)


def overhead(bench: Bench, sets: str) -> Result:
    """Share of an iteration, prefill aside, that is spent outside the networks, batch 16.

    Beyond view, plan, select and commit it counts all that surrounds the networks while drafting
    and verifying: laying tokens out, growing beams, picking tokens, keeping features.
    """
    server = bench.server
    batch = min(BATCH, server.settings.limits.slots)
    wanted = (QUICK_FULL_ITERATIONS if bench.quick else FULL_ITERATIONS) + SKIPPED
    names = sets.split()
    each = -(-batch // len(names))
    prompts = [p for name in names for p in bench.prompts(name, each)[:each]][:batch]
    # No request may end early: the tree emits four tokens an iteration at most.
    engine, driver = start(server, requests_of(prompts, 4 * wanted + 4), make(TREE), batch)
    total: list[float] = []
    inside: list[float] = []
    named: list[float] = []
    with network_clock(server) as clock:
        while (view := engine.next_decision()) is not None and len(total) < wanted:
            clock.take()  # prefill's, which is not part of the figure
            outcome = engine.run_iteration(view, driver)
            network_s = clock.take()
            if int(outcome.ran.sum()) < batch:
                continue
            total.append(decode_s(outcome))
            inside.append(network_s)
            named.append(outcome.controller_s + outcome.select_s + outcome.other_s)
            bench.say(f"overhead: iteration {len(total)} of {wanted}")
    if len(total) <= SKIPPED:
        raise UnmeasuredError(f"no iteration had {batch} requests decoding")
    whole, networks, parts = (np.array(x[SKIPPED:]) for x in (total, inside, named))
    share = float((whole - networks).sum() / whole.sum())
    return Result(
        value=100 * share,
        text=f"{100 * share:.2f} %",
        note=f"{1e3 * np.median(whole - networks):.1f} of {1e3 * np.median(whole):.0f} ms; view, "
        f"plan, select and commit alone {100 * parts.sum() / whole.sum():.2f} %",
        raw={
            "tree": TREE,
            "batch": batch,
            "iterations": len(whole),
            "iteration_ms": (1e3 * whole).tolist(),
            "network_ms": (1e3 * networks).tolist(),
            "view_plan_select_commit_ms": (1e3 * parts).tolist(),
            "dtype": str(server.decoder.dtype),
        },
    )
