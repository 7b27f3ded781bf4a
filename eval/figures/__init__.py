"""Figures of the papers beside what was measured here: `python -m eval.figures adaserve`."""
