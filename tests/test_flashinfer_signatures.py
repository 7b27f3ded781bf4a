"""Our calls fit the installed FlashInfer's signatures; and one that would not is noticed."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from models import flashinfer_interpreter
from models.flashinfer_attention import PIN
from tests.flashinfer_calls import NAMES, differing_parameters, recorded_calls, refused_calls


@pytest.fixture(scope="module")
def flashinfer() -> ModuleType:
    """The package, which imports on a CPU though nothing runs there; else a skip."""
    module: ModuleType = pytest.importorskip(
        "flashinfer", reason=f"{PIN} is not installed", exc_type=ImportError
    )
    return module


def test_every_call_fits_the_installed_package(flashinfer: ModuleType) -> None:
    assert refused_calls(flashinfer) == []


def test_the_interpreter_has_the_installed_packages_parameters(flashinfer: ModuleType) -> None:
    assert differing_parameters(flashinfer) == []


def test_all_operators_are_called() -> None:
    assert {call.name for call in recorded_calls()} == set(NAMES)
    assert refused_calls(flashinfer_interpreter) == []
    assert differing_parameters(flashinfer_interpreter) == []


def test_another_signature_is_noticed() -> None:
    class Renamed(flashinfer_interpreter.BatchPrefillWithPagedKVCacheWrapper):
        def plan(self, qo_indptr: Any, indptr: Any, mask: Any = None) -> None:  # type: ignore
            """Another plan."""

    package = SimpleNamespace(
        BatchPrefillWithPagedKVCacheWrapper=Renamed,
        append_paged_kv_cache=flashinfer_interpreter.append_paged_kv_cache,
    )
    refused = refused_calls(package)
    assert len(refused) == 4 and all(".plan: " in line for line in refused)
    assert any("page_size is unknown" in line for line in differing_parameters(package))


def test_plans_say_which_request_is_the_longest() -> None:
    """Else it looks for it in Python; told the longest context, too, it would plan nothing."""
    plans = [call for call in recorded_calls() if call.name.endswith(".plan")]
    for call in plans:
        longest = call.kwargs["max_token_per_sequence"]
        assert type(longest) is int and longest == int(call.args[1].diff().max())
        assert "max_sequence_kv" not in call.kwargs
