"""What a target pass costs alone, by rows: `python -m benchmarks.passes` prints a table.

Beside the whole pass stand its products in the two forms that `models.layers.Linear` holds, which
is how NARROW_ROWS was chosen. No engine, no drafter: the floor of what a step can take.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING
from unittest.mock import patch

if TYPE_CHECKING:
    from models.kv_cache import TokenBatch

CONTEXT = 200
SHAPES = ((1, 1), (1, 3), (1, 6), (1, 9), (1, 33), (8, 1), (8, 2), (8, 3), (16, 1), (16, 3))
REPEATS = 11


def main() -> None:
    """Time every shape (requests, rows each); medians in milliseconds."""
    import torch

    from engine.compute import choose_dtype
    from models import layers
    from models.decoder import Decoder
    from models.kv_cache import TokenBatch
    from models.registry import resolve

    decoder = Decoder.from_folder(resolve("smollm2-135m-instruct"), choose_dtype())
    cache = decoder.new_cache(16, 2 * CONTEXT)
    generator = torch.Generator().manual_seed(0)

    def batch(requests: int, rows: int) -> TokenBatch:
        slots = torch.arange(requests).repeat_interleave(rows)
        at = torch.arange(CONTEXT, CONTEXT + rows).repeat(requests)
        mask = torch.arange(CONTEXT + rows)[None] <= torch.arange(CONTEXT, CONTEXT + rows)[:, None]
        tokens = torch.randint(decoder.config.vocab_size, at.shape, generator=generator)
        each = mask.expand(requests, rows, CONTEXT + rows).contiguous()
        return TokenBatch(tokens, at, slots, at, at - CONTEXT, each, 0, requests)

    def whole_pass(tokens: TokenBatch) -> None:
        decoder.logits(decoder.forward(tokens, cache)[0])

    def products(rows: int) -> None:
        wide = torch.zeros(rows, decoder.config.hidden_size, dtype=decoder.dtype)
        inner = torch.zeros(rows, decoder.config.intermediate_size, dtype=decoder.dtype)
        for layer in decoder.layers:
            layer.query_key_value(wide), layer.output(wide)
            layer.gate_up(wide), layer.down(inner)
        decoder.head(wide)

    def products_in(form_rows: int, rows: int) -> None:
        with patch.object(layers, "NARROW_ROWS", form_rows):
            products(rows)

    print(f"{decoder.dtype}, {torch.get_num_threads()} threads, {CONTEXT} tokens of context, ms")
    print("| requests | rows each | pass | products, bfloat16 words | products, packed |")
    print("| --- | --- | --- | --- | --- |")
    with torch.inference_mode():
        for requests, rows in SHAPES:
            tokens, total = batch(requests, rows), requests * rows
            times = (
                milliseconds(partial(whole_pass, tokens)),
                milliseconds(partial(products_in, total, total)),
                milliseconds(partial(products_in, 0, total)),
            )
            cells = " | ".join(f"{value:.1f}" for value in times)
            print(f"| {requests} | {rows} | {cells} |", flush=True)


def milliseconds(call: Callable[[], object]) -> float:
    """Median of some repeats, after one that is not counted."""
    call()
    times = []
    for _ in range(REPEATS):
        begun = perf_counter()
        call()
        times.append(perf_counter() - begun)
    return 1e3 * median(times)


if __name__ == "__main__":
    main()
