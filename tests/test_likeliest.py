"""The likeliest token of a row, found through the bits of its floats."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.sampling.likeliest import BLOCK, likeliest

SPECIAL = [0.0, -0.0, 1e-45, -1e-45, math.inf, -math.inf, math.nan, -math.nan, 3.4e38, -3.4e38]


def of_one_row(row: list[float]) -> tuple[int, bool]:
    """Slow twin: the first of the largest, and whether that is a number."""
    if any(map(math.isnan, row)):
        return -1, False
    best = max(row)
    return row.index(best), math.isfinite(best)


@given(
    st.lists(st.floats(width=32) | st.sampled_from(SPECIAL), min_size=1, max_size=40),
    st.integers(1, 3 * BLOCK),
)
def test_as_its_twin(some: list[float], length: int) -> None:
    row = np.resize(np.array(some, np.float32), length)
    rows = torch.from_numpy(np.stack((row, row[::-1])))
    token, finite = likeliest(rows)
    for i, wanted in enumerate((row, row[::-1])):
        at, fine = of_one_row(wanted.tolist())
        assert finite[i] == fine
        if fine:
            assert wanted[token[i]] == wanted[at]
            assert wanted[at] == 0 or token[i] == at  # 0 and -0 are equals, but not as bits


@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, 2 * BLOCK + 5])
@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf])
def test_one_bad_logit_spoils_its_row_alone(bad: float, at: int) -> None:
    logits = torch.randn(3, 2 * BLOCK + 6, generator=torch.Generator().manual_seed(0))
    logits[1, at] = bad
    token, finite = likeliest(logits)
    assert finite.tolist() == [True, False, True]
    assert token[[0, 2]].tolist() == logits[[0, 2]].argmax(-1).tolist()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_formats(dtype: torch.dtype) -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0)).to(dtype)
    token, finite = likeliest(logits)
    assert finite.all() and token.tolist() == logits.argmax(-1).tolist()
    logits[2, 7] = math.nan
    assert likeliest(logits)[1].tolist() == [True, True, False, True]
