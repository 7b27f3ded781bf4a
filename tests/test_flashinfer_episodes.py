"""Whole episodes on FlashInfer's calls, interpreted: the text is the CPU's, or it is noticed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from models import flashinfer_interpreter
from tests.interpreted_schedules import run_interpreted_schedules


def test_random_schedules_on_the_interpreter_change_no_text() -> None:
    counts = run_interpreted_schedules(8, seed=0)
    assert counts["schedules"] == 8
    for name in ("finished", "sampled", "shrunk", "masked passes", "causal passes"):
        assert counts[name] > 20, name


class Deaf:
    """Operators that forget the mask: a tree's nodes see what stands before them."""

    append_paged_kv_cache = staticmethod(flashinfer_interpreter.append_paged_kv_cache)

    class BatchPrefillWithPagedKVCacheWrapper(
        flashinfer_interpreter.BatchPrefillWithPagedKVCacheWrapper
    ):
        def plan(self, *args: Any, **kwargs: Any) -> None:
            if kwargs.pop("custom_mask", None) is not None:
                kwargs["causal"] = True
            super().plan(*args, **kwargs)


class Forgetful:
    """Operators that never write a key."""

    BatchPrefillWithPagedKVCacheWrapper = flashinfer_interpreter.BatchPrefillWithPagedKVCacheWrapper

    @staticmethod
    def append_paged_kv_cache(*args: torch.Tensor, **kwargs: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize("operators", [Deaf, Forgetful])
def test_wrong_operators_change_the_text(operators: Any) -> None:
    with pytest.raises(AssertionError, match="differs"):
        run_interpreted_schedules(8, seed=0, operators=operators)
