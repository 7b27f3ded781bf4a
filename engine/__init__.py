"""Floor 2: the serving engine, its loop, scheduler, drafters, verification and workloads.

Imports nothing here, so that `engine.protocol` stays NumPy-only; knows no controller.
"""
