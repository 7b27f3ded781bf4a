"""Where capacities stand: beside the profile that ships, else in the user's cache.

A file answers for one set-up alone: its key is a digest of all that decides a sweep's outcome. What
is missing, damaged or of another set-up is swept anew and written to the cache.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np

from engine.atomic_write import write_atomic
from engine.replay.capacity_sweep import held_slots, sweep
from engine.replay.capacity_table import CapacityTable
from engine.replay.capacity_trees import Tree, within
from engine.replay.server import DEFAULT_PROFILE, ReplayServer
from models.model_cache import cache_root

LOG = logging.getLogger(__name__)
FORMAT, VERSION = "draftgym.capacity", 1
"""The version counts whatever changes what a sweep finds, in its code or in the engine's."""
SHIPPED = DEFAULT_PROFILE.with_suffix(".capacity.json")
RECORDED = (
    *("text_class", "prompt_tokens", "ended", "first_token", "tokens", "first_place"),
    *("first_node", "parent", "depth", "widths", "token", "probability"),
)
"""What of a recording decides how fast it drains."""
TIMES = ("verify", "draft_first", "draft_next", "prefill", "host")
"""Likewise of a profile."""


def table_of(server: ReplayServer) -> CapacityTable:
    """The server's table, swept only where no file has it."""
    wanted = key_of(server)
    cached = cache_root() / "capacity" / f"{wanted}.json"
    for path in (SHIPPED, cached):
        found = read(path, wanted)
        if found is not None:
            return found
    LOG.info("sweeping fixed trees for the capacity of %s", server.name)
    table = sweep(server)
    try:
        write(cached, table, wanted)
    except OSError as error:  # it is only swept again next time
        LOG.warning("the capacity of %s could not be kept (%s)", server.name, error.strerror)
    return table


def key_of(server: ReplayServer) -> str:
    """Sixteen hex digits of all that decides the server's capacity."""
    digest = hashlib.blake2b(digest_size=8)
    settings, manifest = server.settings, server.manifest
    slots = held_slots(server)
    parts: list[Any] = [
        VERSION, slots, settings.capacity_tokens, settings.prefill_tokens, server.decision_s,
        manifest.classes, manifest.max_depth, manifest.max_width, manifest.max_nodes,
        *within(settings.limits), *(getattr(server.profile, name) for name in TIMES),
    ]  # fmt: skip
    digest.update(repr(parts).encode())
    for name in RECORDED:
        digest.update(np.ascontiguousarray(getattr(server.recording, name)).view(np.uint8).data)
    return digest.hexdigest()


def write(path: Path, table: CapacityTable, key: str) -> None:
    """Write the file, whole or not at all. Raises OSError."""
    raw = {
        "format": FORMAT,
        "version": VERSION,
        "key": key,
        "classes": table.classes,
        "trees": table.trees,
        "prompt_s": table.prompt_s.tolist(),
        "output_s": table.output_s.tolist(),
    }
    write_atomic(path, json.dumps(raw, allow_nan=False) + "\n")


def read(path: Path, key: str) -> CapacityTable | None:
    """The table in that file; None where there is none of that key."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if (raw["format"], raw["version"], raw["key"]) != (FORMAT, VERSION, key):
            return None
        trees = tuple(Tree(*map(int, row)) for row in raw["trees"])
        classes = tuple(map(str, raw["classes"]))
        prompt_s, output_s = (np.array(raw[name], np.float64) for name in ("prompt_s", "output_s"))
    except (OSError, ValueError, TypeError, LookupError):
        return None
    if prompt_s.shape != (len(trees), len(classes)) or output_s.shape != prompt_s.shape:
        return None
    return CapacityTable(trees, classes, prompt_s, output_s)
