"""Many replicas of the engine on replay in one call: for training, which needs millions of steps.

What an iteration does is one chain of Numba functions over arrays of records [R, S]; `fleet.Fleet`
is what others use. Episodes are those of `engine.loop.Engine` with a `ReplayBackend` to the last
bit, for what a fleet serves: greedy recorded requests that nobody withdraws, without a margin, all
KV pages there but for what disturbances withdraw, no overload rule, and one plan for all requests
of a class. It refuses the rest.
"""
