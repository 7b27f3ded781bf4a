"""How near a one-token step comes to reading the weights once at the bandwidth to be had."""

from __future__ import annotations

from statistics import median

from benchmarks.card_time import measure_bandwidth
from benchmarks.decoding import decode_s
from benchmarks.gpu_card import CEILING_BYTES, one_token_steps
from benchmarks.gpu_check.frame import Budget, Findings
from benchmarks.gpu_check.subject import Subject

STEPS, TINY_STEPS = 48, 8
PROMPT_TOKENS = 64
TINY_BYTES = 4 * 2**20


def bandwidth(subject: Subject, budget: Budget) -> Findings:
    """Of both pairs at batch 1, in ordinary decoding."""
    n_bytes = TINY_BYTES if subject.tiny else CEILING_BYTES
    ceiling = measure_bandwidth(subject.device, n_bytes)
    table = [["target", "a step", "of it the target", "weights", "achieved", "of the ceiling"]]
    for name in subject.names:
        if not budget.allows(f"the {name} pair"):
            continue
        server = subject.small if name == "small" else subject.large
        steps = TINY_STEPS if subject.tiny else STEPS
        outcomes = one_token_steps(server, steps, PROMPT_TOKENS)
        step_s = median(decode_s(outcome) for outcome in outcomes)
        weight_bytes = server.decoder.weight_bytes()
        table.append(
            [
                server.name,
                f"{1e3 * step_s:.2f} ms",
                f"{1e3 * median(outcome.verify_s for outcome in outcomes):.2f} ms",
                f"{weight_bytes / 1e6:,.1f} MB",
                f"{weight_bytes / step_s / 1e9:,.1f} GB/s",
                f"{weight_bytes / step_s / ceiling.ceiling:.1%}",
            ]
        )
    return Findings(
        f"a buffer of {n_bytes / 2**20:,.0f} MiB is read at {ceiling.read / 1e9:,.1f} GB/s and "
        f"copied at {ceiling.copied / 1e9:,.1f} GB/s; the larger is the ceiling",
        table,
    )
