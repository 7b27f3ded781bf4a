"""The compute dtype: by name, by measurement, or one clear sentence."""

from __future__ import annotations

import pytest
import torch

from engine import compute
from engine.compute import choose_device, choose_dtype
from engine.errors import UserError
from engine.tiny import tiny_server


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float64", torch.float64)],
)
def test_a_name_is_taken_as_it_is(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute, "_probe_s", None)  # nothing is measured
    assert choose_dtype(name) is dtype


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UserError, match="dtype 'fp8' is unknown; expected auto, float32"):
        choose_dtype("fp8")


@pytest.mark.parametrize("faster", [torch.float32, torch.bfloat16])
def test_auto_takes_the_faster(faster: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(dtype: torch.dtype, hidden: int, inner: int) -> float:
        return 1.0 if dtype is faster else 2.0

    monkeypatch.setattr(compute, "_probe_s", probe)
    assert choose_dtype() is faster


def test_the_probe_measures_both() -> None:
    assert choose_dtype("auto", hidden=8, inner=16) in (torch.float32, torch.bfloat16)


def test_devices_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match="device 'tpu' is unknown; expected auto, cpu, cuda"):
        choose_device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    for asked in (lambda: choose_device("cuda"), lambda: tiny_server(device="cuda")):
        with pytest.raises(UserError, match=r"cuda was asked for, .* finds no card; install"):
            asked()
