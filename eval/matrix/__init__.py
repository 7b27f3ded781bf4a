"""Every controller in every cell of a grid of workloads, on replay: `evaluate.py --matrix`.

`axes` says what varies and which cells there are, `world` makes server and workload of a cell,
`serving` serves it with every controller and `rows` writes down what came of it; `pieces` goes
through all cells in processes and keeps what is done; `regimes` says which controller is best
where, `tails` and `summary` put together what a report shows.
"""
