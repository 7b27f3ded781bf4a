"""Where this machine should compute, and in which number format.

A card computes in bfloat16. On a processor two seconds of measurement decide: bfloat16
halves the bytes of a step, but a processor without bfloat16 arithmetic loses more than that as soon
as several tokens share a pass, which is what verifying a tree is.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import torch

from engine.errors import UserError
from models.layers import Linear

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
DEVICES = ("auto", "cpu", "cuda")
PROBE_TOKENS = (1, 16)  # ordinary decoding and a small tree
PROBE_REPEATS = 12


def choose_device(name: str = "auto") -> torch.device:
    """The device called `name`: auto, cpu or cuda, which "auto" takes where there is a card.

    Of several cards it is the first of CUDA_VISIBLE_DEVICES. Raises UserError for another name, and
    for cuda where torch finds no card.
    """
    if name not in DEVICES:
        raise UserError(f"device {name!r} is unknown; expected {', '.join(DEVICES)}")
    found = torch.cuda.is_available()
    if name == "cuda" and not found:
        raise UserError(
            f"device cuda was asked for, but torch {torch.__version__} finds no card; install a "
            "CUDA build of torch and the card's driver, or choose device cpu"
        )
    return torch.device("cuda", 0) if found and name != "cpu" else torch.device("cpu")


def choose_dtype(
    name: str = "auto",
    hidden: int = 576,
    inner: int = 1536,
    device: torch.device | None = None,
) -> torch.dtype:
    """The dtype called `name`; for "auto" bfloat16 on a card, on the CPU the faster one.

    `device` None is the CPU, where bfloat16 and float32 are timed on products of `hidden` to
    `inner`. Raises UserError for another name.
    """
    if name in DTYPES:
        return DTYPES[name]
    if name != "auto":
        raise UserError(f"dtype {name!r} is unknown; expected auto, {', '.join(DTYPES)}")
    if device is not None and device.type != "cpu":
        return torch.bfloat16
    return min((torch.bfloat16, torch.float32), key=lambda d: _probe_s(d, hidden, inner))


@torch.inference_mode()
def _probe_s(dtype: torch.dtype, hidden: int, inner: int) -> float:
    """Seconds for a stack of layers' products at the probe sizes, larger than the caches."""
    # Weights as they come: checkpoints are in bfloat16 whatever they are served in.
    weights = [torch.randn(2 * inner, hidden, dtype=torch.bfloat16) for _ in range(24)]
    layers = [Linear(weight.to(dtype)) for weight in weights]
    total = 0.0
    for tokens in PROBE_TOKENS:
        x = torch.randn(tokens, hidden, dtype=dtype)
        times = []
        for _ in range(PROBE_REPEATS):
            begun = perf_counter()
            for layer in layers:
                layer(x)
            times.append(perf_counter() - begun)
        total += median(times[2:])
    return total
