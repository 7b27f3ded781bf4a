"""What episodes are served by: networks on this machine, or a recording.

Whoever is handed a `Server` uses what both have: `engine`, `settings`, `unloaded_tpot_s`,
`capacity_rps`, `describe`, `profile` and `name`. For annotations; nothing is imported at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from engine.replay.server import ReplayServer
    from engine.serving import LiveServer

Server: TypeAlias = "LiveServer | ReplayServer"
