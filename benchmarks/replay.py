"""Measure every figure that replay promises: `python -m benchmarks.replay --help` says how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.command import BenchmarkConfig, command
from benchmarks.figures import Bar, Figure
from train.command_line import run_command

FIGURES: tuple[Figure, ...] = (
    Figure(
        "fleet_fixed",
        "environment steps/s, one core, 64 replicas × 16 running, fixed tree",
        Bar("≥", 50_000),
        "benchmarks.replay_speed:fixed_tree",
    ),
    Figure(
        "fleet_budget",
        "environment steps/s, one core, 64 replicas × 16 running, selection under a budget",
        Bar("≥", 25_000),
        "benchmarks.replay_speed:under_budget",
    ),
    Figure(
        "single",
        "environment steps/s, one core, single environment, 16 running",
        Bar("≥", 8_000),
        "benchmarks.replay_speed:single",
    ),
    Figure(
        "ppo",
        "PPO end to end on 2 cores, steps/s",
        Bar("≥", 4_000),
        "benchmarks.replay_training:ppo",
    ),
    Figure(
        "start_cached",
        "start-up of train.py to the first step, kernels cached",
        Bar("≤", 10, "s"),
        "benchmarks.replay_training:start",
        "cached",
    ),
    Figure(
        "start_fresh",
        "start-up of train.py to the first step, kernels not cached",
        Bar("≤", 60, "s"),
        "benchmarks.replay_training:start",
        "fresh",
    ),
    Figure(
        "fidelity",
        "fidelity to live: judged lines beyond their bars",
        Bar("≤", 0),
        "benchmarks.replay_fidelity:lines",
    ),
    Figure(
        "ranking",
        "ranking of controllers: pairs that live shows and replay has the other way round",
        Bar("≤", 0),
        "benchmarks.replay_fidelity:ranking",
    ),
    Figure(
        "tiers",
        "accepted length of every (depth, width, nodes) tier: tiers unlike live's",
        Bar("≤", 0),
        "benchmarks.replay_fidelity:tiers",
    ),
    Figure(
        "same_episode",
        "same seed, same episode: differing bits between processes",
        Bar("≤", 0),
        "benchmarks.replay_process:differing_episodes",
    ),
    Figure(
        "memory",
        "memory of one environment",
        Bar("≤", 200, "MB"),
        "benchmarks.replay_process:memory",
    ),
)


@dataclass(frozen=True)
class ReplayBenchConfig(BenchmarkConfig):
    """Measure every figure of replay, print each against its bar, write them as JSON.

    Use an otherwise idle machine. Rows of earlier runs stay in the file until measured again.
    """

    name: ClassVar[str] = "replay"


def main() -> None:
    """Parse, measure, judge."""
    command(FIGURES, ReplayBenchConfig)


if __name__ == "__main__":
    run_command(main)
