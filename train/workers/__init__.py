"""Live engines in processes of their own: one that dies takes an episode with it and no training.

Stable-Baselines3's `SubprocVecEnv` steps engines in processes, too, but there a worker's exception
reaches the trainer as a bare EOFError, one that hangs is waited for without end, and nothing is
started again. What is in here: `process` runs in a worker, `worker` is one as the trainer holds it,
`vector` all of them as Stable-Baselines3 wants engines, `failures` what is kept of those that died,
and `engine` what a worker makes and steps. Only `engine` knows what is served.
"""
