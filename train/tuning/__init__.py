"""Tuning: the constants of analytic controllers and the hyper-parameters of learning ones.

`session.py` is the whole run of `tune.py`; the other files hold one part of it each.
"""
