"""Synthetic acceptance: recordings of model pairs that cannot be run here, drawn from a model.

What is drawn has the format of a recording, so the replay backend needs to know nothing of it.
"""
