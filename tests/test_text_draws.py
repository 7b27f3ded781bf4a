"""Drawing for many requests at once gives what drawing for one after the other gives."""

from __future__ import annotations

import numpy as np

from engine.workload.text_draws import draw_all, next_text, output_tokens, text_after


def test_draws_of_all_requests_are_those_of_one_after_the_other() -> None:
    cases, texts = np.random.default_rng(0), set()
    for seed in range(60):
        counts = cases.integers(1, 6, 3)
        slo_class = cases.integers(0, 3, int(cases.integers(0, 40)))
        max_tokens = int(cases.integers(1, 90))
        alone, at_once = np.random.default_rng(seed), np.random.default_rng(seed)
        if seed % 2:  # half of a 64-bit number is left for the next draw
            alone.integers(5)
            at_once.integers(5)
        drawn = draw_all(slo_class, counts, max_tokens, at_once)
        last = [-1] * 3
        for c, (number, tokens) in zip(slo_class.tolist(), drawn, strict=True):
            wanted = next_text(last[c], int(counts[c]), alone)
            assert text_after(last[c], int(counts[c]), number) == wanted
            assert tokens == output_tokens(max_tokens, alone)
            assert wanted != last[c] or counts[c] == 1
            last[c] = wanted
            texts.add((c, wanted))
        assert alone.bit_generator.state == at_once.bit_generator.state
    assert len(texts) > 10
