"""A snapshot of a fleet: its state less what never changes, and who was served.

All of `FleetState` is carried that is not named here, so what is added to it comes along.
"""

from __future__ import annotations

from engine.replay.fleet.fleet import Fleet
from engine.replay.fleet.state import FleetState
from engine.replay.recorded_request import RecordedRequest
from engine.sampling.params import SamplingParams
from engine.snapshot_origin import Snapshot, check_origin, digest_of, in_words
from engine.snapshot_values import Carrier, LeftOut

CARRIER = Carrier(
    {
        Fleet: LeftOut(
            constant=(
                *("server", "replicas", "classes", "settings", "limits", "unloaded_tpot_s"),
                *("memory_bytes", "kv_tokens", "_idle_watts", "recording_digest"),
            )
        ),
        # Costs hold what power caps cost, worked out as these come; scratch nothing that lasts.
        FleetState: LeftOut(constant=("rules", "classes", "book"), rebuilt=("costs", "scratch")),
    },
    records=(RecordedRequest, SamplingParams),
    rebuild={Fleet: Fleet.prepare_levels},  # of power caps, which are left out with the costs
)


def take(fleet: Fleet) -> Snapshot:
    """The fleet as it stands, every replica in its own episode."""
    return Snapshot("Fleet", made_on_of(fleet), CARRIER.pack(fleet, "fleet"))


def put_back(fleet: Fleet, snapshot: Snapshot) -> None:
    """Make the fleet what that one was; its requests come along.

    Raises UserError where recording, profile, sizes or replicas are others.
    """
    check_origin(snapshot, "Fleet", made_on_of(fleet))
    CARRIER.unpack(snapshot.state, fleet)


def made_on_of(fleet: Fleet) -> dict[str, str]:
    """What must be the same for a snapshot to be restored."""
    return {
        "recording": fleet.recording_digest,
        "hardware profile": digest_of(fleet.server.profile),
        "class table": digest_of(fleet.classes),
        "KV pool": f"{fleet.kv_tokens} tokens",
        "number of replicas": str(fleet.replicas),
        **in_words(fleet.settings, fleet.server.decision_s),
    }
