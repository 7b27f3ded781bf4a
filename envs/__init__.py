"""Floor 4: Gymnasium environments, thin wrappers around the engine.

`import envs` registers them with Gymnasium (1.x reads no entry points); networks load when an
environment is made. A live engine is timed by measuring, so no two runs of it are alike.
"""

from gymnasium.envs.registration import register, registry

LIVE_ID = "DraftGym/ServeLive-v0"

if LIVE_ID not in registry:
    register(id=LIVE_ID, entry_point="envs.live:make_live", nondeterministic=True)
