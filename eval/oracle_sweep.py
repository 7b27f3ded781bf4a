"""The best fixed tree of a stretch of an episode: the sweep behind a switching oracle, on a fleet.

A stretch is served alone: the requests that arrive in it, under whatever goes wrong meanwhile. So
it need not be a regime; the time in which memory is withdrawn is a stretch too. All trees serve the
same stretches side by side, of training seeds and texts, so that the oracle is not picked on the
arrivals that it then serves. What is found is cached by all that it hangs on. Who changes between
the trees found is `eval.oracle.Switching`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.atomic_write import write_atomic
from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.replay.capacity_store import key_of
from engine.replay.capacity_trees import Tree, planned, within
from engine.replay.fleet.fleet import Fleet
from engine.replay.recorded_request import RecordedRequest
from engine.replay.server import ReplayServer
from engine.request import Request
from engine.workload.build import DrawnRequests, disturbances_of
from eval.metrics import valid_tps
from models.model_cache import cache_root

LOG = logging.getLogger(__name__)
VERSION = 1
ENDLESS = 10**9  # iterations: the horizon ends a stretch


class Found(NamedTuple):
    """The best tree of a stretch."""

    tree: Tree
    valid_tps: float
    """SLO-valid tokens per second, the mean over the sweep's episodes."""


def alone(requests: Sequence[Request], start_s: float, end_s: float) -> DrawnRequests:
    """Those that arrive from `start_s` until `end_s`, under all that goes wrong in the episode.

    Times stay as they are: with nothing to serve an engine's clock goes to the first arrival.
    """
    kept = [request for request in requests if start_s <= request.arrival_s < end_s]
    return DrawnRequests(kept, disturbances_of(requests))


def best_tree(
    server: ReplayServer,
    stretches: Sequence[Sequence[Request]],
    end_s: float,
    classes: ClassTable = DEFAULT_CLASSES,
) -> Found:
    """The tree with the most SLO-valid tokens a second over the stretches [episodes].

    Each is cut at `end_s`. Of equals the cheapest. Swept unless it is cached.
    """
    path = _cached(server, stretches, end_s, classes)
    if (known := _read(path)) is not None:
        return known
    found = max(swept(server, stretches, end_s, classes), key=lambda of: of.valid_tps)
    try:
        write_atomic(path, json.dumps(found) + "\n")
    except OSError as error:  # it is only swept again next time
        LOG.warning("the oracle's tree could not be kept (%s)", error.strerror)
    return found


def swept(
    server: ReplayServer,
    stretches: Sequence[Sequence[Request]],
    end_s: float,
    classes: ClassTable = DEFAULT_CLASSES,
) -> list[Found]:
    """What each tree of the grid reaches over the stretches; the cheapest tree first."""
    cut = copy(server)
    cut.settings = replace(server.settings, horizon_s=end_s)
    limits, count = cut.settings.limits, len(stretches)
    trees = within(limits)
    fleet = Fleet(cut, len(trees) * count, classes)
    for replica in range(fleet.replicas):
        fleet.begin(replica, stretches[replica % count])
    runs = [tree for tree in trees for _ in stretches]
    fleet.serve(planned(runs, len(classes.classes), limits.slots * limits.max_nodes), ENDLESS)
    return [
        Found(tree, float(np.mean([valid_tps(fleet.records(t * count + e)) for e in range(count)])))
        for t, tree in enumerate(trees)
    ]


def _cached(
    server: ReplayServer,
    stretches: Sequence[Sequence[Request]],
    end_s: float,
    classes: ClassTable,
) -> Path:
    digest = hashlib.blake2b(digest_size=8)
    caps = server.power_cap_watts, server.settings.order
    digest.update(repr((VERSION, key_of(server), caps, end_s, classes)).encode())
    for stretch in stretches:
        digest.update(repr(disturbances_of(stretch).of).encode())
        for request in stretch:
            assert isinstance(request, RecordedRequest)
            asked = request.arrival_s, request.slo_class, request.text, request.max_tokens
            digest.update(repr(asked).encode())
    return cache_root() / "oracle" / f"{digest.hexdigest()}.json"


def _read(path: Path) -> Found | None:
    """What was found before; None where nothing can be read."""
    try:
        tree, reached = json.loads(path.read_text(encoding="utf-8"))
        return Found(Tree(*map(int, tree)), float(reached))
    except (OSError, ValueError, TypeError):
        return None
