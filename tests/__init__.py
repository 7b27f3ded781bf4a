"""The tests; a package, so that the repository root is importable while they run."""
