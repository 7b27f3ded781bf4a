"""docs/results/controllers.md from the file that `python -m benchmarks.controllers` wrote."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.adaserve_sweeps import RUN as POINTS
from benchmarks.controllers_pictures import PICTURES
from benchmarks.figures import Row
from benchmarks.results_page import Page, Section
from benchmarks.sweeps_account import account

SECTIONS = (
    Section(
        "What a decision costs",
        ("selection", "decision"),
        "Selection alone is timed on drawn candidates; a decision is plan, extend, select and "
        "observe, as the engine asks for them on replay.",
    ),
    Section(
        "Every controller, whatever happens",
        ("episodes",),
        "Acceptance, draft time, memory and power change at random; a fault is a plan outside the "
        "limits, an exception, another course under the same seed, or another text.",
    ),
    Section(
        "AdaServe, figure 14",
        ("adaserve_constants", "fig14"),
        "Their trace, the artifact's profile of 8 × A100-40GB, synthetic acceptance of their pair "
        "(docs/synthetic.md), 64 slots. AdaServe, Sarathi and slack-priced read prompts in the "
        "passes in which they decode, vLLM in passes of their own. The paper's chains ran on vLLM "
        "0.8.4, whose speculative path paid for prefill and drafting in ways that this engine does "
        "not: chains stand far above their published values, and none was tuned down to fit. "
        "AdaServe has the constants that a search on other workloads found best for it, here and "
        "in all that follows.",
        "controllers-fig14.svg",
        "Attainment of figure 14, here and published",
    ),
    Section(
        "AdaServe, figures 8 to 11",
        ("sweeps",),
        "The paper's points whose traces are public. The best baseline is chosen at every point: "
        "here that is a chain, which pays none of what it paid in vLLM 0.8.4. In the paper's plot "
        "the best baseline attains about 42 % at the highest rate, AdaServe about 87 %.",
        "controllers-sweeps.svg",
        "Violations of the best baseline over AdaServe's, by point",
    ),
    Section(
        "AdaptiveSpec on live",
        ("adaptivespec", "both_axes", "frontier", "noise_floor"),
        "The pair that ships, on this machine, over prompts of GSM8K, MATH-500 and HumanEval. The "
        "best fixed tree and AdaptiveSpec's sizes are chosen on it, on other prompts "
        "(benchmarks/adaptivespec_sizes.py); beside them stand its default sizes, up to depth 8 "
        "and 64 nodes. Answers are cut at 144 tokens. The noise floor compares answers in float32 "
        "and in bfloat16 as the frontier compares those with and without a margin.",
        "controllers-frontier.svg",
        "Speed by answers kept, over the margin m",
    ),
    Section(
        "Slack-priced against AdaServe",
        ("slack_priced", "other_slack_priced", "tails_slack_priced", "live_slack_priced"),
        "AdaServe with its searched constants; six workloads that nothing was tuned on, "
        "differences over seeds with 95 % intervals.",
    ),
)


def _account(row: Row) -> Sequence[str]:
    """Of figures 8 to 11, by point."""
    return account(row) if row.name == POINTS else ()


PAGE = Page(
    "What the controllers do",
    "controllers",
    "docs/evaluation.md has the definitions",
    SECTIONS,
    PICTURES,
    _account,
)
