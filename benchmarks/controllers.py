"""What the controllers of the field do here: `python -m benchmarks.controllers` measures all of it.

Which figures there are and what they promise stands here, how they are measured in the modules that
they name. A figure whose data or controller are missing is in the table all the same, unmeasured
and with the reason. `--write` turns the results into the page for the documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.figures import Bar, Figure
from benchmarks.results_page import Page, PagedConfig, command_with_page
from train.command_line import run_command

LIVE_SETS = "gsm8k humaneval"
PEAKS, SWEEPS = "benchmarks.adaserve_peaks", "benchmarks.adaserve_sweeps"
AGAINST, SPEC = "benchmarks.against_adaserve", "benchmarks.adaptivespec_live"
COST = "benchmarks.decision_cost"

FIGURES: tuple[Figure, ...] = (
    Figure(
        "selection",
        "AdaServe selection, 32 requests × 64 candidates",
        Bar("≤", 100, "µs"),
        f"{COST}:selection",
    ),
    Figure(
        "selection_share",
        "AdaServe selection on live, batch 16: share of the iteration",
        Bar("≤", 0.3, "%"),
        f"{COST}:selection_share",
        LIVE_SETS,
    ),
    Figure(
        "decision",
        "whole decision of any controller, 64 requests, p99: the slowest",
        Bar("≤", 500, "µs"),
        f"{COST}:decision",
    ),
    Figure(
        "episodes",
        "every controller on 200 random episodes with disturbances: faults",
        Bar("≤", 0),
        "benchmarks.controller_episodes:wrong",
    ),
    Figure(
        "adaserve_constants",
        "AdaServe's constants, searched where nothing is shown: what every replay figure takes",
        None,
        "benchmarks.adaserve_constants:search",
    ),
    Figure(
        "fig14_first",
        "AdaServe fig. 14: its lead over the best other published contender, points",
        Bar("≥", 0),
        f"{PEAKS}:first",
    ),
    *(
        Figure(
            f"fig14_{label.replace('(', '-').rstrip(')')}",
            f"AdaServe fig. 14: {label}, points off the published attainment",
            bar,
            f"{PEAKS}:against_published",
            label,
        )
        for label, bar in (
            ("vllm", Bar("≤", 5)),
            ("sarathi", Bar("≤", 5)),
            ("adaserve", Bar("≤", 8)),
            # Chains here pay none of vLLM 0.8.4's costs: the gap is shown, no bar is set to it.
            ("vllm-spec(4)", None),
            ("vllm-spec(6)", None),
            ("vllm-spec(8)", None),
        )
    ),
    Figure(
        "fig14_sensitivity",
        "AdaServe fig. 14: most that another acceptance or profile moves AdaServe, points",
        None,
        f"{PEAKS}:sensitivity",
    ),
    Figure(
        "sweeps_ahead",
        "AdaServe fig. 8 to 11: points with fewer violations than the best baseline",
        Bar("≥", 80, "%"),
        f"{SWEEPS}:ahead",
    ),
    Figure(
        "sweeps_violations",
        "AdaServe fig. 8 to 11: violations of the best baseline over AdaServe's, best point",
        Bar("≥", 4.3),
        f"{SWEEPS}:best",
        "violations",
    ),
    Figure(
        "sweeps_goodput",
        "AdaServe fig. 8 to 11: goodput over the best baseline's, best point",
        Bar("≥", 1.9),
        f"{SWEEPS}:best",
        "goodput",
    ),
    Figure(
        "adaptivespec_batch1",
        "AdaptiveSpec on live, batch 1: lossless tree mode over best-fixed",
        Bar("≥", 1.05),
        f"{SPEC}:modes",
        "1",
    ),
    Figure(
        "adaptivespec_batch8",
        "AdaptiveSpec on live, batch 8: lossless tree mode over best-fixed",
        Bar("≥", 1.05),
        f"{SPEC}:modes",
        "8",
    ),
    Figure(
        "both_axes_batch1",
        "AdaptiveSpec on live, batch 1: both axes over the faster of either alone",
        Bar("≥", 1.0),
        f"{SPEC}:both_axes",
        "1",
    ),
    Figure(
        "both_axes_batch8",
        "AdaptiveSpec on live, batch 8: both axes over the faster of either alone",
        Bar("≥", 1.0),
        f"{SPEC}:both_axes",
        "8",
    ),
    Figure(
        "frontier_batch1",
        "AdaptiveSpec on live, batch 1: over static eagle3 where ≥ 93 % of answers are kept",
        Bar("≥", 1.3),
        f"{SPEC}:frontier",
        "1",
    ),
    Figure(
        "frontier_batch8",
        "AdaptiveSpec on live, batch 8: over static eagle3 where ≥ 93 % of answers are kept",
        Bar("≥", 1.3),
        f"{SPEC}:frontier",
        "8",
    ),
    Figure(
        "noise_floor",
        "AdaptiveSpec on live, batch 8: final answers that bfloat16 alone keeps",
        None,
        "benchmarks.noise_floor:floor",
    ),
    Figure(
        "slack_priced",
        "slack-priced against AdaServe, its constants searched elsewhere: workloads won of six",
        Bar("≥", 5),
        f"{AGAINST}:over_adaserve",
    ),
    Figure(
        "other_slack_priced",
        "slack-priced against the best other controller: workloads won of six",
        Bar("≥", 5),
        f"{AGAINST}:from_the_run",
        "best other",
    ),
    Figure(
        "tails_slack_priced",
        "slack-priced against AdaServe: p99 TPOT and completion by class shown worse",
        Bar("≤", 0),
        f"{AGAINST}:tails",
        "adaserve",
    ),
    Figure(
        "live_slack_priced",
        "slack-priced less AdaServe on live: violations a block",
        Bar("<", 0),
        "benchmarks.live_order:order",
    ),
)


@dataclass(frozen=True)
class ControllersBenchConfig(PagedConfig):
    """Measure every figure of the controllers, print each against its bar, write them as JSON.

    Use an otherwise idle machine. Rows of earlier runs stay in the file until measured again.
    """

    name: ClassVar[str] = "controllers"


def main() -> None:
    """Parse, measure, judge, and write the page whatever the verdict."""

    def page() -> Page:
        from benchmarks.controllers_page import PAGE

        return PAGE

    command_with_page(FIGURES, ControllersBenchConfig, page)


if __name__ == "__main__":
    run_command(main)
