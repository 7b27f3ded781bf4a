"""A live server's stand-in on replay: the recording that ships, timed by the server's own profile.

Where both are of the server's pair, what is found on the stand-in in seconds holds for the live
server, and would take it minutes: its capacity, and which fixed tree is best at a load.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import UserError
from engine.replay.capacity_store import table_of
from engine.replay.capacity_table import CapacityTable
from engine.replay.recording_folder import load, read_manifest
from engine.replay.server import DEFAULT_RECORDING, ReplayConfig, ReplayServer

if TYPE_CHECKING:
    from engine.serving import LiveServer

LOG = logging.getLogger(__name__)


def table_of_live(server: LiveServer) -> CapacityTable | None:
    """What fixed trees drain on the live server; None where it has no stand-in, which is logged."""
    try:
        return table_of(stand_in(server))
    except UserError as error:
        LOG.info("the capacity of %s is estimated by ordinary decoding: %s", server.name, error)
        return None


def stand_in(server: LiveServer) -> ReplayServer:
    """The live server on replay. Raises UserError that says what is missing."""
    if server.profile is None:
        raise UserError(f"no hardware profile of this set-up: {server.fallback.missing}")
    manifest = read_manifest(DEFAULT_RECORDING)
    here = server.identity
    recorded = manifest.model, manifest.drafter, manifest.network
    if recorded != (here.model, here.drafter, here.network):
        raise UserError(
            f"no recording of {here.model} with {here.drafter} ({here.network}) is at hand; the "
            f"one that ships is of {manifest.model} with {manifest.drafter} ({manifest.network})"
        )
    pool, settings = server.backend.pool, server.settings
    twin = ReplayServer(
        *load(DEFAULT_RECORDING),
        server.profile,
        ReplayConfig(
            slots=settings.limits.slots,
            capacity_tokens=settings.capacity_tokens,
            page_size=pool.page_size,
            kv_pool_tokens=pool.pages * pool.page_size,
        ),
    )
    twin.settings = replace(
        twin.settings, prefill_tokens=settings.prefill_tokens, order=settings.order
    )
    return twin
