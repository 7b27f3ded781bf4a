"""Floor 4: Gymnasium environments, thin wrappers around the engine.

`import envs` registers them with Gymnasium (1.x reads no entry points); networks and recordings
load when an environment is first reset. A live engine is timed by measuring, so no two runs of it
are alike; on replay time is modelled, and the same seed gives the same episode.
"""

from gymnasium.envs.registration import register, registry

SERVE_ID = "DraftGym/Serve-v0"
LIVE_ID = "DraftGym/ServeLive-v0"

if SERVE_ID not in registry:
    register(
        id=SERVE_ID,
        entry_point="envs.replay:make_replay",
        vector_entry_point="envs.vector:make_replay_vector",
    )
if LIVE_ID not in registry:
    register(id=LIVE_ID, entry_point="envs.live:make_live", nondeterministic=True)
