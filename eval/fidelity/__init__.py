"""How true replay is: the same requests served live and on replay, figure by figure.

`python -m eval.fidelity` runs it (ALGORITHMS.md §11).
"""
