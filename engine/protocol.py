"""What the engine and a controller say to each other: View, Plan, Candidates, Outcome, Controller.

NumPy only, so an exported controller can import it anywhere. A controller is handed one replica's
slice: every per-request array has one entry a slot, and only slots in `view.active` mean anything.
S is the number of slots, D the deepest tree allowed, C the class count, N the candidates a slot.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Limits(NamedTuple):
    """What the engine can do at most; a plan outside is clipped and counted."""

    slots: int = 16
    max_depth: int = 8
    max_width: int = 8
    max_nodes: int = 64  # kept nodes a request, the root not counted

    @property
    def max_candidates(self) -> int:
        """Scored candidates a slot: w at depth 1, w·w at each later depth."""
        return self.max_width + (self.max_depth - 1) * self.max_width**2


class View(NamedTuple):
    """What a controller sees before it decides. Times are on the engine's clock."""

    active: Bools  # [S] decodes in this iteration
    request: Ints  # [S] id of the request in the slot; a preempted one may return in another slot
    slo_class: Ints  # [S] index into class_names
    tokens_out: Ints  # [S] tokens emitted after the first
    decode_time_s: Floats  # [S] time since the first token
    tpot_objective_s: Floats  # [S] seconds per token, inf without an objective
    slack_tokens: Floats  # [S] tokens_out - decode_time / objective; negative is late
    queue_age_s: Floats  # [S] time from arrival to the request's first slot
    context_tokens: Ints  # [S] prompt and output held in the cache
    remaining_tokens: Ints  # [S] tokens still allowed
    proposed: Floats  # [S, D] decayed count: how often position 1..D was offered
    accepted: Floats  # [S, D] decayed count: how often it was accepted
    since_proposed: Ints  # [S, D] iterations since the position was last offered
    draft_confidence: Floats  # [S] drafter's top-1 probability at the last root, 0 if never drafted
    class_names: tuple[str, ...]
    class_tpot_objective_s: Floats  # [C]
    queued: Ints  # [C] requests waiting for a slot
    oldest_queued_s: Floats  # [C] age of the oldest of them, 0 when none waits
    prefilling: int  # slots whose prompt is not through yet
    kv_free_tokens: int  # rows not taken by contexts
    kv_total_tokens: int
    kv_free_pages: int  # pages that no request owns: what an admission or a larger tree can get
    kv_total_pages: int
    memory_bytes: int  # resident memory of the process
    power_watts: float
    power_cap_watts: float  # inf without a cap
    power_is_measured: bool  # False: modelled from utilisation
    clock_s: float
    iteration_s: float  # length of the previous iteration, 0 at the start
    unloaded_tpot_s: float  # ordinary decoding alone on this machine
    limits: Limits
    pricing: Pricing | None = None  # what plans cost here; None: no hardware profile was measured
    # Tokens of a verification, roots included, that the device has CUDA graphs for, ascending; what
    # lies between is padded to the next. None: nothing is padded.
    tiers: tuple[int, ...] | None = None
    # [S] entropy in nats of the drafter's distribution at the last root; 0 if never drafted, NaN
    # where the drafter has no such distribution, or keeps it to itself. The engine always gives it.
    draft_entropy: Floats | None = None


class Plan(NamedTuple):
    """How to speculate in the coming iteration."""

    depth: Ints  # [S] draft steps, 0 is ordinary decoding
    width: Ints  # [S] beam width, 1 is a chain
    nodes: Ints  # [S] nodes kept for verification, the root not counted
    margin: Floats  # [S] acceptance margin, 1 is lossless
    node_budget: int  # nodes kept over the whole batch, roots not counted
    prefill_tokens: int | None = None  # prompt tokens before the next decoding; None: the engine's
    max_running: int | None = None  # requests that may hold a slot; None: all slots
    # Asks the engine to hold `node_budget` to what its hardware profile verifies in so many
    # one-token steps. None, or without a profile: `node_budget` as it stands.
    budget_steps: float | None = None


class Pricing(Protocol):
    """What the requests of a view would cost under a plan, by this machine's hardware profile."""

    def step_s(self, plan: Plan) -> float:
        """Seconds of the step, the controller and the reading of prompts not counted."""
        ...

    def verify_s(self, tokens: ArrayLike) -> Floats:
        """Seconds of a verification of so many nodes over the whole batch, roots included."""
        ...

    def node_budget(self, multiple: float) -> int:
        """The most nodes, roots not counted, whose verification takes `multiple` one-token steps.

        0 where the roots alone take longer. Raises UserError for a multiple that is not above 0.
        """
        ...


@runtime_checkable
class Tabulated(Protocol):
    """A `Pricing` that can also tabulate, which only who searches among many plans asks for."""

    def table(self, nodes: int, widths: Ints) -> PriceTable:
        """The parts of a step for the requests of the view, of up to `nodes` nodes in all.

        Further draft steps are those of beams of `widths`.
        """
        ...


class PricedByClass(Protocol):
    """A `Pricing` that prices a step twice at once, for who watches prices in every decision."""

    def class_steps_s(self, slo_class: Ints, tree: Floats) -> tuple[float, float] | None:
        """Seconds of a step without drafts, and of one with trees of depth, width and nodes
        `tree` [3, C] by class, as `step_s` has them; None where these are not known beforehand."""
        ...


# Lengths of a prompt's chunk whose reading `PriceTable` prices.
PROMPT_CHUNKS: tuple[int, ...] = (16, 32, 64, 128, 256, 512)


class PriceTable(NamedTuple):
    """Seconds and joules of the parts of a step by size, for who searches among many plans.

    Joules and watts are 0 where nothing is known of the machine's power.
    """

    verify_s: Floats  # [K + 1] roots and 0..K nodes; the engine's own work is in it
    verify_joules: Floats  # [K + 1]
    draft_first_s: Floats  # [2] the first draft step: once, and for every row of it
    draft_next_s: Floats  # [W, S + 1] a further one with 0..S requests in it, for each width
    draft_watts: float  # while drafting
    undrafted_tokens: Ints  # [S] rows that each request has in its first draft step
    ordinary_s: Floats  # [S + 1] an ordinary step of 0..S requests with contexts as now
    prefill_s: Floats  # [P] reading as many tokens of a prompt as `PROMPT_CHUNKS` says


class Candidates(NamedTuple):
    """Drafted trees as flat arrays; entries from size[s] on mean nothing.

    A parent always stands before its children; parent -1 is the root (the last emitted token).
    """

    size: Ints  # [S]
    parent: Ints  # [S, N] index of the parent among the slot's candidates, -1 the root
    depth: Ints  # [S, N] 1 for children of the root
    token: Ints  # [S, N]
    probability: Floats  # [S, N] product of draft probabilities from the root


class Outcome(NamedTuple):
    """What an iteration brought. `ran` marks the slots that decoded in it."""

    ran: Bools  # [S]
    slo_class: Ints  # [S]
    accepted_length: Ints  # [S] tokens emitted, the bonus token included
    drafted: Ints  # [S] candidates scored
    verified: Ints  # [S] nodes verified, the root included
    wasted: Ints  # [S] drafted or verified and not accepted
    let_through: Ints  # [S] tokens accepted by the margin rule that the target did not choose
    given_up: Floats  # [S] log-ratio by which those fell short of the target's choices, summed
    proposed: Bools  # [S, D] position offered to the target
    accepted: Bools  # [S, D] position accepted
    accepted_within: (
        Ints  # [S, D + 1, N_TIERS] emitted had only that depth and node budget been kept
    )
    finished: Bools  # [S] the request ended in this iteration
    valid_tokens: Ints  # [S] emitted tokens that kept to the objective (ALGORITHMS.md §10)
    start_s: float  # clock at the start
    prefill_s: float
    draft_s: float
    select_s: float
    verify_s: float
    controller_s: float
    other_s: float  # admission, view, commit: the engine's own work
    energy_joules: float
    memory_bytes: int
    clipped: int  # plan entries outside the limits
    shrunk: int  # kept nodes dropped to fit the node budget or the cache
    # The iteration's length as the hardware profile had it beforehand, the controller's time not
    # counted; NaN without a profile.
    predicted_s: float = float("nan")
    # [S] nats by which the drafter's distribution behind the root verified here misses the target's
    # (`engine.drafters.divergence`), NaN where nothing was drafted or the drafter cannot tell; None
    # for a controller that does not declare `needs_divergence`.
    divergence: Floats | None = None

    @property
    def iteration_s(self) -> float:
        """Length of the iteration on the engine's clock."""
        return (
            self.prefill_s
            + self.draft_s
            + self.select_s
            + self.verify_s
            + self.controller_s
            + self.other_s
        )

    @property
    def prediction_error(self) -> float:
        """Predicted over measured length, minus 1, the controller's time in neither; else NaN."""
        measured_s = self.iteration_s - self.controller_s
        return self.predicted_s / measured_s - 1 if measured_s > 0 else float("nan")


# Node budgets for which `Outcome.accepted_within` tells what would have been accepted.
NODE_TIERS: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)


class Controller:
    """Decides how to speculate. A subclass must give `plan`; the rest has sensible defaults."""

    name = "controller"
    lossless = True
    # Seconds charged for a plan beside what `plan` itself takes: an environment sets it to what it
    # took to compute the features, which an exported controller does within its `plan`.
    decision_s = 0.0
    # True: where there is no hardware profile (`View.pricing` is None), the engine decodes
    # ordinarily and asks the controller nothing (engine/profile/fallback.py).
    needs_profile = False
    # True: `Outcome.divergence` is worked out, which takes time in every verification.
    needs_divergence = False

    def reset(self, limits: Limits) -> None:
        """A new episode begins: forget what was learned about running requests."""

    def plan(self, view: View) -> Plan:
        """The plan for the coming iteration."""
        raise NotImplementedError(f"{type(self).__name__} defines no plan()")

    def extend(self, view: View, plan: Plan, step: int, candidates: Candidates) -> Bools | None:
        """Which slots draft on after draft step `step` (1, 2, …); None leaves it to the depth.

        An override forces a host synchronisation in every draft step, and that time is charged.
        """
        return None

    def select(self, view: View, plan: Plan, candidates: Candidates) -> Bools | None:
        """Which candidates [S, N] to verify, closed under parents.

        None keeps each slot's `plan.nodes` best by path probability (EAGLE-2), and no more than
        `plan.node_budget` over the batch.
        """
        return None

    def observe(self, outcome: Outcome) -> None:
        """What the iteration brought."""


def uniform_plan(limits: Limits, depth: int, width: int, nodes: int, margin: float = 1.0) -> Plan:
    """The same tree for every slot, without a limit over the batch."""
    slots = limits.slots
    plan = Plan(
        depth=np.empty(slots, np.int64),
        width=np.empty(slots, np.int64),
        nodes=np.empty(slots, np.int64),
        margin=np.empty(slots),
        node_budget=slots * limits.max_nodes,
    )
    # Every decision begins here, and `np.full` takes three times as long.
    for sizes, size in zip(plan[:4], (depth, width, nodes, margin), strict=True):
        sizes.fill(size)
    return plan
