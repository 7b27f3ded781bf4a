"""What learning comes to here: `python -m benchmarks.learning` measures all of it.

Which figures there are and what they promise stands here, how they are measured in the modules that
they name. Trainings take hours in all; each is kept in runs/learning-benchmark when it is finished
(`learning_runs`), and what was cut goes on. `--write` turns the results into the page for the
documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmarks.figures import Bar, Figure
from benchmarks.results_page import Page, PagedConfig, command_with_page
from train.algorithms.registry import ALGORITHMS
from train.command_line import run_command

SUBJECT, ALGORITHM = "benchmarks.learning_subject", "benchmarks.learning_algorithms"
COST, PROOFS = "benchmarks.learning_cost", "benchmarks.learning_proofs"
LIVE_SETS, ALL_SETS = "gsm8k humaneval", "gsm8k math500 humaneval"

FIGURES: tuple[Figure, ...] = (
    Figure(
        "ppo_beats_best_fixed",
        "train.py --policy ppo, default, 2 cores: until it beats the best fixed tree",
        Bar("≤", 5, "min"),
        "benchmarks.learning_first_win:minutes",
    ),
    Figure(
        "contest",
        "shifting load at which tuned AdaServe attains 70 to 85 %, searched on training seeds",
        None,
        "benchmarks.learning_contest:search",
    ),
    Figure(
        "trained_violations",
        "trained controller, held-out shifting load: violations over AdaServe's",
        Bar("≤", 0.8),
        f"{SUBJECT}:against_adaserve",
    ),
    Figure(
        "trained_goodput",
        "trained controller, held-out shifting load: goodput over AdaServe's",
        Bar("≥", 1.05),
        f"{SUBJECT}:from_the_run",
        "goodput",
    ),
    Figure(
        "trained_slack_priced",
        "trained controller against slack-priced: lower bound of what it gains, the worse of both",
        Bar("≥", -1, "%"),
        f"{SUBJECT}:from_the_run",
        "slack-priced",
    ),
    Figure(
        "trained_capped",
        "trained controller at that load: goodput over a fixed tree and batch cap, the best of 140",
        None,
        "benchmarks.learning_capped:over_capped",
        "trained_violations",
    ),
    Figure(
        "algorithm_baselines",
        "shifting load: goodput of who is not trained, the best fixed tree first",
        None,
        f"{ALGORITHM}:baselines",
    ),
    *(
        Figure(
            f"algorithm_{name}",
            f"{name}: of ordinary decoding and a random policy, beaten",
            Bar("≥", 2),
            f"{ALGORITHM}:beaten",
            name,
        )
        for name in ALGORITHMS
    ),
    Figure(
        "algorithm_start",
        "of these eight, how many beat the controller with which their training begins",
        None,
        f"{ALGORITHM}:over_start",
    ),
    Figure(
        "algorithm_capped",
        "ppo at the preset's load: goodput over a fixed tree and batch cap, the best of 140",
        None,
        "benchmarks.learning_capped:over_capped",
        "algorithm_ppo",
    ),
    Figure(
        "live_order",
        "exported controller on live: orders that replay shows and live has the other way round",
        Bar("≤", 0),
        "benchmarks.learning_live:order",
    ),
    Figure(
        "adaptation",
        "abrupt changes of 4 after which it loses less than AdaServe and TurboSpec",
        Bar("≥", 3),
        "benchmarks.learning_adaptation:below",
    ),
    Figure(
        "exported_decision_class",
        "exported decision by class, 64 requests, view to plan, p99",
        Bar("≤", 50, "µs"),
        f"{COST}:decision",
        "class",
    ),
    Figure(
        "exported_decision_request",
        "exported decision by request, 64 requests, view to plan, p99",
        Bar("≤", 200, "µs"),
        f"{COST}:decision",
        "request",
    ),
    Figure(
        "exported_share",
        "exported controller on live, batch 16: share of the iteration",
        Bar("≤", 0.5, "%"),
        f"{COST}:share",
        LIVE_SETS,
    ),
    Figure(
        "toy_action",
        "scalar-γ toy: chance of the right action, of any algorithm the least",
        Bar("≥", 0.99),
        f"{PROOFS}:right_action",
    ),
    Figure(
        "toy_value",
        "truncation toy: error of the value, of any algorithm the largest",
        Bar("≤", 1, "%"),
        f"{PROOFS}:value_error",
    ),
    Figure(
        "killed",
        "kill −9 and --resume: runs whose final weights differ from an uninterrupted one's",
        Bar("≤", 0),
        f"{PROOFS}:killed",
    ),
    Figure(
        "tuned_adaptivespec",
        "tuned adaptivespec over its defaults, held-out seeds: score",
        Bar("≥", 0, "tokens/s"),
        "benchmarks.learning_tuned:gain",
    ),
    Figure(
        "learning_to_draft",
        "Learning-to-Draft preset on live, batch 1: over the best fixed tree",
        None,
        "benchmarks.learning_to_draft:over_best_fixed",
        ALL_SETS,
    ),
)


@dataclass(frozen=True)
class LearningBenchConfig(PagedConfig):
    """Measure every figure of learning, print each against its bar, write them as JSON.

    Use an otherwise idle machine. Rows of earlier runs stay in the file until measured again, and
    trainings in runs/learning-benchmark until they are deleted.
    """

    name: ClassVar[str] = "learning"


def main() -> None:
    """Parse, measure, judge, and write the page whatever the verdict."""

    def page() -> Page:
        from benchmarks.learning_page import PAGE

        return PAGE

    command_with_page(FIGURES, LearningBenchConfig, page)


if __name__ == "__main__":
    run_command(main)
