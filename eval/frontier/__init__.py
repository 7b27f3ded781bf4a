"""The frontier: demand swept past the feasible point, and what each overload policy does to whom.

`serving` serves one run, `audit` says what became of each class, `summary` puts seeds together,
`verdicts` says what is shown, `telling` prints it. `python -m eval.frontier` does all of it
(`command`).
"""
