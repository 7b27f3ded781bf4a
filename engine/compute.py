"""Which number format this machine should compute in: two seconds of measurement decide.

bfloat16 halves the bytes of a step, but a processor without bfloat16 arithmetic loses more than
that as soon as several tokens share a pass, which is what verifying a tree is.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import torch

from engine.errors import UserError
from models.layers import Linear

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
PROBE_TOKENS = (1, 16)  # ordinary decoding and a small tree
PROBE_REPEATS = 12


def choose_dtype(name: str = "auto", hidden: int = 576, inner: int = 1536) -> torch.dtype:
    """The dtype called `name`, or the faster of bfloat16 and float32 for "auto"."""
    if name in DTYPES:
        return DTYPES[name]
    if name != "auto":
        raise UserError(f"dtype {name!r} is unknown; expected auto, {', '.join(DTYPES)}")
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
