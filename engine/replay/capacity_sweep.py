"""The sweep behind a capacity: every tree drains every class, all of them side by side.

A saturating run has all its requests there at once. Each class comes alone, every recorded text
equally often and with lengths as a workload draws them, so that little is left to chance; both
halves of the texts are served, since one capacity holds in training and evaluation alike. What
counts is the stretch in which all slots are busy: from when as many requests as there are slots
have ended until as many are left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.classes import ClassTable, SLOClass
from engine.replay.capacity_table import CapacityTable
from engine.replay.capacity_trees import Tree, planned, within
from engine.replay.drawing import Text, recorded_text
from engine.replay.fleet.fleet import Fleet
from engine.replay.recorded_request import RecordedRequest
from engine.replay.server import ReplayServer
from engine.workload.config import WorkloadConfig

ANYBODY = ClassTable((SLOClass("anybody", math.inf),))
"""Nothing is promised: objectives do not change how fast requests are drained."""
MAX_TOKENS = WorkloadConfig(load=1.0).max_tokens
REQUESTS_A_SLOT = 12
"""At least; more make a sweep longer and its numbers steadier."""


def sweep(server: ReplayServer, seed: int = 0) -> CapacityTable:
    """The table of a server, whatever its order and overload rule are; the same every time.

    `seed` orders the requests. Takes a second or two for 16 slots. Raises UserError where a
    recording has no text that the server's context holds.
    """
    plain = server.roomy(held_slots(server))
    trees = within(plain.settings.limits)
    queues = {
        name: queue
        for c, name in enumerate(plain.manifest.classes)
        if (queue := saturating(plain, [c], seed))
    }
    runs = [(tree, queue) for tree in trees for queue in queues.values()]
    seconds = drained([run[0] for run in runs], [run[1] for run in runs], plain)
    by_class = np.array(seconds).reshape(len(trees), len(queues), 2)
    return CapacityTable(trees, tuple(queues), by_class[:, :, 0], by_class[:, :, 1])


def saturating(
    server: ReplayServer, classes: Sequence[int], seed: int = 0
) -> list[RecordedRequest]:
    """Requests for the texts of these classes, all there at 0; [] where no text is short enough.

    `classes` are indices into the recording's. Every text comes equally often, a round of all
    texts after the other; lengths are spread evenly over what a workload draws by default.
    """
    recording, context = server.recording, server.settings.context_tokens
    indices = np.flatnonzero(np.isin(recording.text_class, classes))
    texts = [recorded_text(recording, i) for i in indices.tolist()]
    texts = [text for text in texts if len(text.prompt) < context]
    if not texts:
        return []
    rng = np.random.default_rng(seed)
    rounds = math.ceil(REQUESTS_A_SLOT * server.settings.limits.slots / len(texts))
    least = math.ceil(MAX_TOKENS / 2)
    spread = np.linspace(least, MAX_TOKENS, rounds * len(texts)).round().astype(int)
    lengths = rng.permutation(spread).tolist()
    order = [texts[i] for _ in range(rounds) for i in rng.permutation(len(texts)).tolist()]
    return [
        _request(number, text, min(length, text.tokens, context - len(text.prompt)))
        for number, (text, length) in enumerate(zip(order, lengths, strict=True))
    ]


def drained(
    trees: Sequence[Tree], queues: Sequence[list[RecordedRequest]], server: ReplayServer
) -> list[tuple[float, float]]:
    """Seconds a prompt token and an emitted token take, of each tree on its queue."""
    fleet = Fleet(server, len(trees), ANYBODY)
    for replica, queue in enumerate(queues):
        fleet.begin(replica, queue)
    # What is read before the first decision is told with the iterations that follow.
    most = sum(request.max_tokens for queue in queues for request in queue)
    limits = server.settings.limits
    plan = planned(trees, 1, limits.slots * limits.max_nodes)
    prefill_s = fleet.serve(plan, most).tally["prefill_s"]
    found = []
    for replica, queue in enumerate(queues):
        lines = fleet.state.requests[replica, : len(queue)]
        prompt_s = prefill_s[replica] / lines["prompt_tokens"].sum()
        found.append((float(prompt_s), _output_s(lines, float(prompt_s), limits.slots)))
    return found


def _output_s(lines: np.ndarray, prompt_s: float, slots: int) -> float:
    """Seconds an emitted token takes while all slots are busy; `lines` [n] of REQUEST."""
    lines = lines[np.argsort(lines["finish_s"], kind="stable")]
    within = lines[slots:-slots]
    span_s = within["finish_s"][-1] - lines["finish_s"][slots - 1]
    return float((span_s - prompt_s * within["prompt_tokens"].sum()) / within["emitted"].sum())


def held_slots(server: ReplayServer) -> int:
    """Slots that the server can keep busy.

    Where its KV pool holds fewer requests of a usual length than there are slots, memory is what
    bounds the batch.
    """
    settings, pool = server.settings, server.engine([]).backend.pool
    length = math.ceil(float(server.recording.prompt_tokens.mean()) + 0.75 * MAX_TOKENS)
    held = pool.pages // pool.pages_for(min(length, settings.context_tokens))
    return max(min(settings.limits.slots, held), 1)


def _request(number: int, text: Text, tokens: int) -> RecordedRequest:
    return RecordedRequest(
        number, 0, list(text.prompt), tokens, 0.0, text.stop_ids, text=text.number
    )
