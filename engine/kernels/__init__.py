"""The bookkeeping between two network passes, in Numba: one concern a file, plain loops.

Each kernel loops over replicas, and each has a plain-Python twin in the tests.
"""
