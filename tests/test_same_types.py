"""A kernel whose arguments' types are looked up once."""

from __future__ import annotations

import numpy as np
from numba import njit

from envs.same_types import SameTypes


@njit
def total(values: np.ndarray, factor: float) -> float:
    """Sum of `values`, times `factor`."""
    return values.sum() * factor


def test_types_are_looked_up_again_for_other_objects_alone() -> None:
    call, whole, real = SameTypes(total), np.array([1, 2]), np.array([0.5, 0.25])
    assert call((whole,), whole, 2.0) == 6.0
    code = call._code
    whole[0] = 5
    assert call((whole,), whole, 3.0) == 21.0
    assert call._code is code
    assert call((real,), real, 2.0) == 1.5  # read as whole numbers it would be enormous
    assert call._code is not code
    assert call((whole,), whole, 1.0) == total(whole, 1.0) == 7.0
