"""A card is chosen, named and metered, on a machine that only pretends to have one."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch

from engine import compute, nvml
from engine.card import card_meter, machine_with
from engine.compute import choose_device, choose_dtype
from engine.protocol import Limits
from engine.serving import LiveServer
from engine.tiny import tiny_decoder, tiny_head
from tests.device_twin import CARD, CPU, HELD_BYTES, NAME, DeviceTwin, device_twin
from tests.nvml_double import RecordedNvml, Row

LIMITS = Limits(slots=3, max_depth=3, max_width=3, max_nodes=8)


@pytest.fixture(scope="module")
def twin() -> Iterator[DeviceTwin]:
    """A machine with a card, of which little is measured."""
    with (
        patch("engine.serving.PROBE_CONTEXT", 8),
        patch("engine.serving.PROBE_ITERATIONS", 3),
        device_twin() as twin,
    ):
        yield twin


def server_on(device: torch.device) -> LiveServer:
    """A server of three slots whose cache has pages of three tokens."""
    target = tiny_decoder(0, 10, layers=3, device=device)
    return LiveServer(
        target, tiny_head(target), None, LIMITS, 36, "tiny", page_size=3, kv_pool_tokens=36
    )


def test_a_card_is_taken_and_computes_in_bfloat16(
    twin: DeviceTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_device() == choose_device("cuda") == CARD
    assert choose_device("cpu") == CPU
    monkeypatch.setattr(compute, "_probe_s", None)  # nothing is measured
    assert choose_dtype("auto", device=CARD) == torch.bfloat16
    assert choose_dtype("float64", device=CARD) == torch.float64


def test_a_set_up_on_a_card_has_a_profile_of_its_own(twin: DeviceTwin) -> None:
    here, there = (server_on(device) for device in (CPU, CARD))
    assert there.identity.machine == machine_with(CARD) != machine_with(CPU)
    assert there.identity.machine.processor.startswith(NAME)
    assert (there.identity.device, there.identity.threads) == ("cuda", 0)
    assert (there.identity.attention, there.identity.page_size) == ("plain", 3)
    told = " ".join(there.identity.differences(here.identity))
    assert "device cuda, here cpu" in told and NAME in told
    assert NAME in there.describe() and "threads" in here.describe()
    assert there.backend.memory_bytes() == HELD_BYTES


def test_the_meter_is_that_very_cards(
    twin: DeviceTwin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    double = RecordedNvml([Row(0.0)], clock=lambda: 1.0)
    monkeypatch.setattr(nvml, "_pynvml", lambda: double)
    meter = card_meter(CARD)
    assert meter is not None and double.handles == ["GPU-c0ffee"]
    assert meter.card.watts == 112.0
    meter.close()
    assert card_meter(CPU) is None and not caplog.records
    monkeypatch.setattr(nvml, "_pynvml", lambda: None)
    monkeypatch.setattr("engine.card.find_spec", lambda name: None)
    assert card_meter(CARD) is None
    assert "nvidia-ml-py is missing (install draftgym[gpu])" in caplog.messages[-1]
    monkeypatch.setattr("engine.card.find_spec", lambda name: object())
    assert card_meter(CARD) is None
    assert "NVML does not answer for the card of UUID c0ffee" in caplog.messages[-1]
