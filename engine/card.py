"""The graphics card that networks are on: its name, its memory, its energy, and waiting for it.

For networks on the CPU all of this is the host's. What a reading means is the meter's to say.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from importlib.util import find_spec

import torch

from engine.gpu_meter import GpuMeter, open_gpu_meter
from engine.profile.machine import Machine, this_machine
from engine.telemetry import resident_bytes

LOG = logging.getLogger("draftgym.gpu")


def held_bytes(device: torch.device) -> int:
    """Memory that serving on `device` holds now: this process's, or its tensors' on the card."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    return resident_bytes()


def wait_for(device: torch.device) -> None:
    """Return when what was asked of `device` is done; the CPU has nothing outstanding."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def machine_with(device: torch.device) -> Machine:
    """This machine by what step times hang on: its card first, where the networks are on one."""
    machine = this_machine()
    if device.type != "cuda":
        return machine
    return replace(
        machine, processor=f"{torch.cuda.get_device_name(device)} with {machine.processor}"
    )


def card_meter(device: torch.device) -> GpuMeter | None:
    """A running meter of the very card that `device` is, None for the CPU or without a driver.

    Logs why where a card has none: its energy is then not counted, the processor's stands in.
    """
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    # NVML counts all cards, CUDA those it may see: only the UUID names the same one to both.
    meter = open_gpu_meter(f"GPU-{properties.uuid}")
    if meter is None:
        missing = (
            "the package nvidia-ml-py is missing (install draftgym[gpu])"
            if find_spec("pynvml") is None
            else f"NVML does not answer for the card of UUID {properties.uuid}"
        )
        LOG.warning(
            "power and energy of %s cannot be read, since %s; what is told is the processor's",
            properties.name,
            missing,
        )
    return meter
