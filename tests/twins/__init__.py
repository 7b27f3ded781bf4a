"""Plain-Python twins of the Numba kernels: one module a kernel, slow, and written another way.

A twin knows lists, sets and one slot; the tests loop over slots and replicas for it.
"""
