"""Training of an EAGLE-3 draft head on its target's own answers: `python -m models.distill`."""
