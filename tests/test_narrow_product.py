"""Products with bfloat16 weights equal the exact product, and are used only where they may be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.layers import NARROW_ROWS, Linear
from models.narrow_product import TASK_WORDS, NarrowProduct


def weight_of(outputs: int, inputs: int, seed: int) -> torch.Tensor:
    """Random float32 weights that bfloat16 holds exactly."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(outputs, inputs, generator=generator).bfloat16().float()


@settings(max_examples=60)
@given(
    st.integers(1, 26),
    st.integers(1, 6 * TASK_WORDS + 1),
    st.integers(1, 70),
    st.integers(0, 2**31 - 1),
)
def test_equals_its_twin(rows: int, outputs: int, inputs: int, seed: int) -> None:
    weight = weight_of(outputs, inputs, seed)
    x = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed + 1))
    # The twin sums in plain Python floats, which are wide enough to count as exact.
    wanted = [
        [sum(a * b for a, b in zip(row, w, strict=True)) for w in weight.tolist()]
        for row in x.tolist()
    ]
    np.testing.assert_allclose(NarrowProduct(weight)(x), wanted, rtol=0, atol=2e-5)


def test_a_weight_that_bfloat16_rounds_is_not_exact() -> None:
    weight = weight_of(4, 8, 0)
    assert NarrowProduct.exact(weight)
    weight[1, 2] += 1e-4
    assert not NarrowProduct.exact(weight)
    assert not NarrowProduct.exact(weight_of(4, 8, 0).double())


@pytest.mark.parametrize("rows", [1, NARROW_ROWS, NARROW_ROWS + 1])
@pytest.mark.parametrize("rounded", [True, False])
def test_linear_is_the_same_product_in_every_form(rows: int, rounded: bool) -> None:
    weight = weight_of(40, 64, 3) if rounded else torch.randn(40, 64)
    x = torch.randn(rows, 64)
    with torch.inference_mode():
        got = Linear(weight)(x)
    wanted = x.double() @ weight.double().T
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)
    # The bytes of a pass are those of the form that a token reads.
    assert Linear(weight).n_bytes == weight.numel() * (2 if rounded else 4)
