"""The sweep behind `best-fixed`: which fixed tree attains most at a load, on training arrivals.

All trees serve the same episodes side by side on replay: of training texts, drawn as training draws
them, so nothing that a comparison serves is seen. The tree that attains most objectives wins, of
equals the one with more goodput, then the cheaper. Memory pressure and overload rules are left out,
as in a capacity. What is found is cached by all that it hangs on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.atomic_write import write_atomic
from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.errors import UserError
from engine.protocol import Controller
from engine.replay.capacity_live import stand_in
from engine.replay.capacity_store import key_of
from engine.replay.capacity_sweep import held_slots
from engine.replay.capacity_trees import GRID, Tree, planned, within
from engine.replay.drawing import RecordedDrawing
from engine.replay.fleet.fleet import Fleet
from engine.replay.recorded_request import RecordedRequest
from engine.replay.server import ReplayServer
from engine.request import Request
from engine.workload import WorkloadConfig
from eval.metrics import attainment, goodput_tps
from models.model_cache import cache_root
from policies.actions import EVERY_SLOT, SHARES
from policies.best_fixed import awaiting

if TYPE_CHECKING:
    from engine.server import Server
    from engine.serving import LiveServer

LOG = logging.getLogger(__name__)
VERSION = 2
SEED = 0
"""Of the generator that all episodes come from, one after the other, as in training."""
REQUESTS, EPISODES = 600, (2, 64)
"""That each tree serves at least, in so many episodes at least and at most."""
ENDLESS = 10**9  # iterations: the horizon ends an episode


class Found(NamedTuple):
    """The best tree and what it reached over the sweep's episodes."""

    tree: Tree
    attainment: float
    goodput_tps: float
    share: float = 1.0
    """Of the slots that may be held."""

    def told(self) -> str:
        """In words, for a report's notes."""
        return (
            f"best-fixed is {self.tree.spec}: of {len(GRID)} fixed trees it attains most on "
            f"training arrivals at this load ({100 * self.attainment:.1f} %, goodput "
            f"{self.goodput_tps:.1f} tokens/s on replay)"
        )


def settle(
    controllers: Mapping[str, Controller],
    server: Server,
    config: WorkloadConfig,
    seconds: float,
    classes: ClassTable = DEFAULT_CLASSES,
) -> list[str]:
    """Give every `best-fixed` among the controllers its tree; returns what was found, in words.

    `config` is the workload as it will be served, `seconds` the length of a run. On live the sweep
    is served by the server's stand-in on replay at the same load, in multiples of capacity. Raises
    UserError where there is none; without a `best-fixed` nothing is done.
    """
    waiting = awaiting(controllers.values())
    if not waiting:
        return []
    if isinstance(server, ReplayServer):
        replay = server
    else:
        replay, config = _of_live(server, config)
    found = best_tree(replay, config, seconds, classes)
    for controller in waiting:
        controller.settle(*found.tree)
    return [found.told()]


def best_tree(
    server: ReplayServer, config: WorkloadConfig, seconds: float, classes: ClassTable
) -> Found:
    """The best fixed tree for the workload, swept in seconds unless it is cached."""
    episodes = drawn(server, config, classes)
    path = _cached(server, config, seconds, classes, episodes)
    if (known := _read(path)) is not None:
        return known
    best = most(swept(server, episodes, seconds, classes))
    try:
        write_atomic(path, json.dumps(best) + "\n")
    except OSError as error:  # it is only swept again next time
        LOG.warning("the best fixed tree could not be kept (%s)", error.strerror)
    return best


def best_capped(
    server: ReplayServer, config: WorkloadConfig, seconds: float, classes: ClassTable
) -> Found:
    """The fixed tree and share of the slots, of SHARES, with the most goodput; not cached."""
    found = swept(server, drawn(server, config, classes), seconds, classes, SHARES)
    return max(found, key=lambda f: (f.goodput_tps, f.attainment))


def most(found: Sequence[Found]) -> Found:
    """Who attains most objectives, of equals who has more goodput, then the first."""
    return max(found, key=lambda f: (f.attainment, f.goodput_tps))


def drawn(server: ReplayServer, config: WorkloadConfig, classes: ClassTable) -> list[list[Request]]:
    """The sweep's episodes: as many as serve each tree REQUESTS."""
    generator = np.random.default_rng(SEED)
    draw = RecordedDrawing(server, config, classes)
    fewest, limit = EPISODES
    episodes = [draw(generator) for _ in range(fewest)]
    while sum(map(len, episodes)) < REQUESTS and len(episodes) < limit:
        episodes.append(draw(generator))
    return episodes


def swept(
    server: ReplayServer,
    episodes: Sequence[list[Request]],
    seconds: float,
    classes: ClassTable,
    shares: Sequence[float] = EVERY_SLOT,
) -> list[Found]:
    """What each tree reaches over the episodes with each of the shares of the slots held, cut after
    `seconds`; the cheapest tree first.

    Where nothing was promised every tree attains all.
    """
    plain = server.roomy(held_slots(server))
    plain.settings = replace(plain.settings, horizon_s=seconds)
    limits = plain.settings.limits
    settings = [(tree, share) for tree in within(limits) for share in shares]
    count = len(episodes)
    runs = [setting for setting in settings for _ in episodes]
    fleet = Fleet(plain, len(runs), classes)
    for replica in range(len(runs)):
        fleet.begin(replica, episodes[replica % count])
    everybody = limits.slots * limits.max_nodes
    plan = planned([tree for tree, _ in runs], len(classes.classes), everybody)
    fleet.serve(plan._replace(running=np.array([share for _, share in runs])), ENDLESS)
    found = []
    for s, (tree, share) in enumerate(settings):
        records = [fleet.records(s * count + e) for e in range(count)]
        attained = attainment(record for of_episode in records for record in of_episode)
        goodput = float(np.mean([goodput_tps(of_episode) for of_episode in records]))
        found.append(Found(tree, 1.0 if math.isnan(attained) else attained, goodput, share))
    return found


def _of_live(server: LiveServer, config: WorkloadConfig) -> tuple[ReplayServer, WorkloadConfig]:
    """The live server's stand-in, and the workload for it: recorded prompts cannot be cut."""
    try:
        replay = stand_in(server)
    except UserError as error:
        raise UserError(
            f"best-fixed is found by a sweep on replay, which this live server has not: {error}; "
            "or name the tree, as in best-fixed(depth=2, width=1, nodes=2)"
        ) from error
    context = replay.settings.context_tokens
    return replay, replace(config, prompt_tokens=context, truncate=False)


def _cached(
    server: ReplayServer,
    config: WorkloadConfig,
    seconds: float,
    classes: ClassTable,
    episodes: Sequence[list[Request]],
) -> Path:
    """Where the tree for all this lies, if it was found before."""
    parts = VERSION, key_of(server), server.settings.order, config, seconds, classes
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8)
    for request in (request for episode in episodes for request in episode):
        assert isinstance(request, RecordedRequest)
        asked = request.arrival_s, request.slo_class, request.text, request.max_tokens
        digest.update(repr(asked).encode())
    return cache_root() / "best-fixed" / f"{digest.hexdigest()}.json"


def _read(path: Path) -> Found | None:
    """What was found before; None where nothing can be read."""
    try:
        tree, attained, goodput, share = json.loads(path.read_text(encoding="utf-8"))
        return Found(Tree(*map(int, tree)), float(attained), float(goodput), float(share))
    except (OSError, ValueError, TypeError):
        return None
