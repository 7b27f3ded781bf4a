"""The state of R replicas: arrays of records, one record for each thing that has a life.

Kernels are handed a record or the whole state, and NumPy sees each field as an array of its own
(`slots["context"]` is [R, S]). Records, since Numba takes minutes to compile functions that hand on
a hundred arrays, and two dozen of records are compiled in seconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.classes import ClassTable
from engine.orders import LIFT_AT
from engine.protocol import Bools, Floats, Ints, Limits
from engine.replay.fleet.costs import Costs
from engine.replay.lookup import ranked
from engine.replay.recording import ROOT, Recording
from engine.state import MAX_STOPS
from engine.workload.disturbances import Schedule

Record = Any
"""One entry of an array of records, by reference."""


def _record(**kinds: str) -> np.dtype:
    """A record whose fields have these kinds; a kind may stand for several fields."""
    fields = [(name, kind) for kind, names in kinds.items() for name in names.split()]
    return np.dtype(fields, align=True)


CLASS = _record(f8="tpot_s ttft_s completion_s queue_age_s lift_s")
"""What a class was promised, inf where nothing was; a wait of `lift_s` lifts over the order."""

TEXT = _record(i8="first_output first_place")
"""Where a recorded text's output tokens and places begin."""

REQUEST = np.dtype(
    [
        *((name, "f8") for name in ("arrival_s", "order_key")),
        *((name, "i8") for name in ("slo_class", "prompt_tokens", "max_tokens", "text")),
        ("stop", "i8", (MAX_STOPS,)),  # -1 for none
        ("ended", "i8"),  # 1 for the first of the replica's that has ended, 0 before its end
        # Its line in the ledger once it has.
        *((name, "f8") for name in ("admitted_s", "first_token_s", "finish_s")),
        *((name, "i8") for name in ("emitted", "valid_tokens", "iterations", "verified_nodes")),
        # How often it gave its slot up, when it last did, and its longest wait after that.
        ("preempted", "i8"),
        ("parked_s", "f8"),
        ("requeued_s", "f8"),
    ],
    align=True,
)
"""What is asked of a replica, and what became of it. Under the engine's order the smaller
`order_key` goes first, then who came first."""

SLOT = np.dtype(
    [
        *((name, "?") for name in ("active", "decoding")),
        *(
            (name, "i8")
            for name in (
                "request",  # index among the replica's
                "slo_class",
                "text",
                "to_prefill",  # tokens to process before it decodes
                "prefilled",  # of them, those that are
                "context",  # tokens whose keys and values are committed
                "drafted_to",  # context that the drafter has run
                "emitted",  # tokens emitted, the first included
                "max_tokens",
                "valid_tokens",
                "iterations",
                "verified_nodes",
                # Of the iteration under way.
                "place",  # where it stands in the recording
                "following",  # index of the text's next token
                "depth",
                "width",
                "nodes",
                "path",  # accepted drafts
            )
        ),
        *((name, "f8") for name in ("arrival_s", "admitted_s", "entered_s", "first_token_s")),
        *((name, "f8") for name in ("tpot_s", "draft_confidence")),
    ],
    align=True,
)
"""A slot, as `engine.state.SlotState` has it; one that is not active holds stale values."""

REPLICA = _record(
    f8="work_s clock_s start_s iteration_s watts prefill_s joules work_before_s joules_before "
    "acceptance",
    i8="requests arrived waiting ended prefilled chunks change_point allowed decoding kv_tokens "
    "most_running",
    u8="drift_key",
    b1="ready has_drift has_slow_drafts has_caps has_pressure",
)
"""`work_s` and `joules` are those of `engine.replay.clock`; `work_before_s`, `joules_before` what
they were when the engine last went on to a decision. `clock_s` is the engine's, which also jumps
over idle time. `iteration_s` and `watts` are of the latest iteration; `start_s`, `prefill_s`, the
tokens `prefilled`, `chunks` and, once planned, how many are `decoding` on how many `kv_tokens` of
the one under way. `arrived` of the `requests` have come, `waiting` wait, `ended` have ended.
`ready`: somebody decodes, so a plan is due. No more slots than `most_running` may be held, as the
plan that was served last has it. What goes wrong: `acceptance` is the factor on what was drafted
last, `drift_key` the episode's, `change_point` where its schedule was read last; where it
`has_pressure` no more slots than `allowed` may be held."""

STAGES = ("prefill", "draft", "select", "verify", "controller", "other")
TALLY = _record(
    f8="busy_s energy_joules prefill_s draft_s select_s verify_s controller_s other_s",
    i8="iterations emitted valid verified finished attained missed",
)
"""What the iterations since the last look brought (`envs.reward.Tally`)."""

ENDED = _record(i8="counted attained good_tokens")
"""Of a class, requests with an objective that ended since the last look, those of them that met
all, and the tokens of these."""


class Rules(NamedTuple):
    """What is the same for all replicas and never changes."""

    prefill_tokens: int
    horizon_s: float
    decision_s: float
    max_depth: int
    max_width: int
    max_nodes: int
    power_cap_watts: float  # inf for none
    peak_watts: float  # the device's highest power
    is_edf: bool  # the order is by deadline


class History(NamedTuple):
    """By tree position [R, S, D], decayed counts and age (`engine.state.SlotState`)."""

    proposed: Floats
    accepted: Floats
    since_proposed: Ints


class Book(NamedTuple):
    """A recording: N texts, P places, M nodes. Large arrays are the recording's own, not copies."""

    texts: Any  # [N] TEXT
    tokens: NDArray[np.int32]
    first_node: Ints  # [P + 1]
    # Of each place, by depth: which of its nodes is the text's own continuation, ROOT for none. A
    # walk never reads another node's token. The last column is ROOT, so that every path ends.
    on_path: NDArray[np.uint8]  # [P, D + 1]
    # Of a node, `parent << 16 | depth << 8 | widths`: what scans read stands together, since most
    # of a scan's time is waiting for memory.
    shape: NDArray[np.uint32]  # [M]
    parent: NDArray[np.uint8]  # [M]
    token: NDArray[np.int32]  # [M]
    probability: NDArray[np.float32]  # [M]
    sure: Floats  # [P] the drafter's probability of its best guess, -1 where it had none


class FleetPlan(NamedTuple):
    """How to speculate until the next decision, by class."""

    depth: Ints  # [R, C]
    width: Ints  # [R, C]
    nodes: Ints  # [R, C]
    node_budget: Ints  # [R] kept nodes over the whole batch
    running: Floats  # [R] share of the slots that may be held, above 0 and at most 1


class Scratch(NamedTuple):
    """Where kernels work something out that make no arrays; all but the memo means nothing between
    two calls, and the memo says nothing that the book does not say."""

    ends: Ints  # [D + 1, 3] for `iteration`: by depth what ends there
    seen: Bools  # [C] for `waiting`
    chance: Floats  # [S * N] for `trees`, as are the next two
    depth: NDArray[np.uint8]  # [S * N]
    paths: Floats  # [2, ROOT + 1]
    # Trees that were looked up before, as `trees.look_up` packs them, -1 where nothing stands yet.
    # Texts are served again and again, and a scan waits for memory. As long as a power of two.
    memo: Ints


class FleetState(NamedTuple):
    """Everything. Requests stand in order of arrival, in rows as long as the longest need."""

    rules: Rules
    classes: Any  # [C] CLASS
    costs: Costs
    book: Book
    requests: Any  # [R, Q] REQUEST
    queue: Ints  # [R, Q] who waits, in order of arrival
    queued: Ints  # [R, C] how many of them are of each class
    slots: Any  # [R, S] SLOT
    history: History
    replicas: Any  # [R] REPLICA
    tally: Any  # [R] TALLY
    ended: Any  # [R, C] ENDED
    wrong: Schedule  # what goes wrong with every replica
    parked: Any  # [R, S] SLOT as it was when its request gave it up; active while it is parked
    parked_history: History
    scratch: Scratch


def class_records(table: ClassTable, unloaded_tpot_s: float) -> np.ndarray:
    """The promises of a class table, [C] CLASS."""
    records = np.zeros(len(table.classes), CLASS)
    records["tpot_s"] = table.tpot_objectives_s(unloaded_tpot_s)
    records["ttft_s"] = table.ttft_objectives_s(unloaded_tpot_s)
    records["completion_s"] = table.completion_objectives_s(unloaded_tpot_s)
    records["queue_age_s"] = table.queue_age_objectives_s(unloaded_tpot_s)
    records["lift_s"] = LIFT_AT * records["queue_age_s"]
    return records


def open_fleet_book(recording: Recording) -> Book:
    """The recording as a fleet reads it."""
    texts = np.zeros(recording.texts, TEXT)
    texts["first_output"] = recording.first_token[:-1] + recording.prompt_tokens
    texts["first_place"] = recording.first_place[:-1]
    deepest = int(recording.depth.max(initial=0))
    book = Book(
        texts,
        recording.tokens,
        recording.first_node,
        np.full((recording.places, deepest + 1), ROOT, np.uint8),
        shapes(recording.parent, recording.depth, recording.widths),
        recording.parent,
        recording.token,
        recording.probability,
        np.empty(recording.places),
    )
    find_paths(book, recording.first_place, recording.first_token)
    return book


def shapes(parent: Any, depth: Any, widths: Any) -> NDArray[np.uint32]:
    """[M] of `Book.shape`, from these of the nodes [M]."""
    packed = parent.astype(np.uint32)
    for lower in (depth, widths):
        packed <<= np.uint32(8)
        packed |= lower
    return packed


@njit(cache=True)
def find_paths(book: Book, first_place: Ints, first_token: Ints) -> None:
    """Fill in `on_path` and `sure`: texts' places and tokens begin at those offsets [N + 1]."""
    for text in range(len(book.texts)):
        first, end = first_place[text], first_place[text + 1]
        for place in range(first, end):
            following = book.texts[text].first_output + 1 + place - first
            first_node, above, length = book.first_node[place], ROOT, 0
            has_nodes = first_node < book.first_node[place + 1]
            book.sure[place] = ranked(book.probability[first_node], 0) if has_nodes else -1.0
            for i in range(first_node, book.first_node[place + 1]):  # parents before children
                if following + length == first_token[text + 1]:
                    break
                if book.parent[i] == above and book.token[i] == book.tokens[following + length]:
                    above = i - first_node
                    book.on_path[place, length] = above
                    length += 1


def new_scratch(limits: Limits, classes: int, places: int) -> Scratch:
    """For a fleet with these limits and so many classes, on a recording of so many places."""
    line = limits.slots * limits.max_nodes
    return Scratch(
        np.zeros((limits.max_depth + 1, 3), np.int64),
        np.zeros(classes, np.bool_),
        np.zeros(line),
        np.zeros(line, np.uint8),
        np.zeros((2, ROOT + 1)),
        np.full(1 << (2 * places).bit_length(), -1),
    )


def new_history(replicas: int, limits: Limits) -> History:
    """Nothing was ever proposed."""
    shape = (replicas, limits.slots, limits.max_depth)
    return History(np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64))
