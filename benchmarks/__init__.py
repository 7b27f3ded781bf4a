"""Measurements of the project's own claims: `python -m benchmarks.<name>`; never packaged."""
