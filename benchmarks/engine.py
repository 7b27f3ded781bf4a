"""Measure every figure that the engine promises: `python -m benchmarks.engine --help` says how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.command import BenchmarkConfig, command
from benchmarks.figures import Bar, Figure
from train.command_line import run_command

SETS = "gsm8k humaneval"  # maths and coding
ALL_SETS = "gsm8k humaneval mt_bench alpaca summarization"

FIGURES: tuple[Figure, ...] = (
    Figure(
        "floor",
        "one-token step, batch 1 ÷ reading the weights once",
        Bar("≤", 2.5),
        "benchmarks.floor:floor",
        "gsm8k",
    ),
    Figure(
        "assisted",
        "batch 1: best fixed tree ÷ transformers assisted generation",
        Bar("≥", 2.0),
        "benchmarks.peers:assisted",
        SETS,
    ),
    Figure(
        "batch1",
        "batch 1: best fixed tree ÷ autoregressive",
        Bar("≥", 1.5),
        "benchmarks.speed:batch1",
        SETS,
    ),
    Figure(
        "batch16",
        "batch 16: autoregressive ÷ transformers batched generate",
        Bar("≥", 1.3),
        "benchmarks.peers:batched",
        SETS,
    ),
    Figure(
        "llama_cpp",
        "batch 1: autoregressive ÷ llama.cpp, weights at 16 bit",
        None,
        "benchmarks.llama_cpp:plain",
        SETS,
    ),
    Figure(
        "overhead",
        "engine's own work outside the networks, batch 16",
        Bar("≤", 3, "%"),
        "benchmarks.overhead:overhead",
        SETS,
    ),
    Figure(
        "sampling",
        "batch 16: verification at temperature 1, top-p 0.9 ÷ greedy",
        None,
        "benchmarks.sampling_cost:cost",
        SETS,
    ),
    Figure(
        "predicted_step",
        "predicted against measured step time, held-out points",
        Bar("≤", 5, "% median and 12 % p95", "within 1.5 × the noise of repeated steps"),
        "benchmarks.prediction:held_out",
    ),
    Figure(
        "predicted_run",
        "predicted against measured step time, ten-minute run",
        Bar("≤", 5, "% median and 12 % p95", "within 1.5 × the noise of repeated steps"),
        "benchmarks.prediction:served",
    ),
    Figure(
        "enumeration",
        "verification, exact enumeration: largest total variation",
        Bar("≤", 0),
        "benchmarks.proofs:enumeration",
    ),
    Figure(
        "text",
        "text of trees against ordinary decoding, float32: departures in 100,000 tokens",
        Bar("≤", 1),
        "benchmarks.same_text:departures",
        ALL_SETS,
    ),
    Figure(
        "schedules",
        "random schedules with cancellation, preemption, memory pressure: failures",
        Bar("≤", 0),
        "benchmarks.proofs:schedules",
    ),
)


@dataclass(frozen=True)
class EngineConfig(BenchmarkConfig):
    """Measure every figure of the engine, print each against its bar, write them as JSON.

    Use an otherwise idle machine. Rows of earlier runs stay in the file until measured again.
    """

    name: ClassVar[str] = "engine"


def main() -> None:
    """Parse, measure, judge."""
    command(FIGURES, EngineConfig)


if __name__ == "__main__":
    run_command(main)
