"""How far a one-token step is from the time that it takes to read the weights once.

The floor is the bytes of one pass's weights over the sustained read bandwidth of a buffer of that
size, read with all cores in the same run: no decoder can be faster that reads every weight.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from benchmarks.bench import Bench
from benchmarks.decoding import decode_s, iterations, requests_of, start
from benchmarks.figures import Result
from policies.registry import make

STEPS = 64
QUICK_STEPS = 12
ROUNDS = 4
SKIPPED = 3
CHUNK = 4096  # float32 numbers that a thread sums at a time


@njit(cache=True, fastmath=True, parallel=True)
def _read(buffer: NDArray[np.float32], sums: NDArray[np.float32]) -> None:
    """Sum every chunk of the buffer: the least work that still reads all of it."""
    for chunk in prange(len(sums)):
        total = np.float32(0)
        for i in range(chunk * CHUNK, (chunk + 1) * CHUNK):
            total += buffer[i]
        sums[chunk] = total


def read_s(n_bytes: int, repeats: int) -> list[float]:
    """Seconds of each reading of a buffer of about `n_bytes`."""
    chunks = max(1, n_bytes // (4 * CHUNK))
    buffer = np.ones(chunks * CHUNK, np.float32)
    sums = np.empty(chunks, np.float32)
    _read(buffer, sums)
    times = []
    for _ in range(repeats):
        begun = perf_counter()
        _read(buffer, sums)
        times.append(perf_counter() - begun)
    return times


def floor(bench: Bench, name: str) -> Result:
    """Median one-token step over the floor; the two are measured in turns."""
    server = bench.server
    n_bytes = server.decoder.weight_bytes()
    steps = QUICK_STEPS if bench.quick else STEPS
    step_s: list[float] = []
    verify_s: list[float] = []
    reading_s: list[float] = []
    for index, prompt in enumerate(bench.prompts(name)[:ROUNDS]):
        bench.say(f"floor: round {index + 1} of {ROUNDS}")
        reading_s += read_s(n_bytes, steps)
        engine, driver = start(server, requests_of([prompt], steps), make("autoregressive"), 1)
        for number, outcome in enumerate(iterations(engine, driver)):
            if number >= SKIPPED:
                step_s.append(decode_s(outcome))
                verify_s.append(outcome.verify_s)
    reading, step = median(reading_s), median(step_s)
    return Result(
        value=step / reading,
        text=f"{step / reading:.2f}×",
        note=f"{1e3 * step:.1f} ms a step, {1e3 * median(verify_s):.1f} ms of it the target; "
        f"{n_bytes / 1e6:.0f} MB read in {1e3 * reading:.1f} ms "
        f"({n_bytes / reading / 1e9:.1f} GB/s)",
        raw={
            "step_ms": 1e3 * step,
            "verify_ms": 1e3 * median(verify_s),
            "floor_ms": 1e3 * reading,
            "weight_bytes": n_bytes,
            "read_gb_per_s": n_bytes / reading / 1e9,
            "steps": len(step_s),
            "dtype": str(server.decoder.dtype),
        },
    )
