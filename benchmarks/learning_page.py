"""docs/results/learning.md from the file that `python -m benchmarks.learning` wrote."""

from __future__ import annotations

from benchmarks.learning_pictures import PICTURES
from benchmarks.results_page import Page, Section

SECTIONS = (
    Section(
        "How soon it pays",
        ("ppo_beats_best_fixed",),
        "One training as `train.py` has it. Its checkpoints, one every half minute, are compared "
        "with the best fixed tree afterwards, by paired held-out seeds of the whole ten minutes of "
        "shifting load. It beats where goodput is shown to be more and violations are no more.",
    ),
    Section(
        "The trained controller",
        ("contest", "trained"),
        "Five trainings; the 20 held-out seeds of shifting load, multiplied by the factor at which "
        "AdaServe, its constants tuned on training seeds, attains 70 to 85 %. Ratios of "
        "interquartile means with 95 % intervals over trainings and held-out seeds. Objectives are "
        "of time per token, so waiting costs nothing: the last row, and its like under every "
        "algorithm, set the trained controller against a fixed tree that lets few requests run at "
        "once, both chosen once on training arrivals.",
    ),
    Section(
        "Every algorithm",
        ("algorithm",),
        "Three trainings, 65,536 decisions each, on shifting load; ten held-out seeds of 200 s. "
        "Curves are of the held-out episodes by which training chooses its best model; the best "
        "fixed tree's level is its score on the same ones.",
        "learning-curves.svg",
        "Held-out score by decisions, a panel an algorithm",
    ),
    Section(
        "On live",
        ("live_order",),
        "The pair that ships, on this machine, in paired blocks; replay serves blocks of the same "
        "length by this machine's profile.",
    ),
    Section(
        "After an abrupt change",
        ("adaptation",),
        "One thing changes at one moment. The reference is the switching oracle, definitions are "
        "those of docs/evaluation.md. A change counts where mean regret is less and mean excess "
        "time no more than those of AdaServe and of TurboSpec.",
    ),
    Section(
        "What a decision costs",
        ("exported",),
        "View to plan alone, in iterations in which the controller decides; in the others it holds "
        "what it decided before. The share of live counts all of its calls.",
    ),
    Section(
        "Proofs",
        ("toy", "killed"),
        "Two toys of known answer for every algorithm, and trainings that are killed.",
    ),
    Section(
        "Tuning",
        ("tuned_adaptivespec",),
        "A short study of `tune.py`, and its own test on held-out seeds and texts.",
    ),
    Section(
        "Learning-to-Draft",
        ("learning_to_draft",),
        "Its observation and set-up, one request at a time, over EAGLE-3, against the best fixed "
        "tree, which is chosen on other prompts.",
    ),
)

PAGE = Page(
    "What learning comes to",
    "learning",
    "docs/evaluation.md has the definitions, docs/training.md the algorithms",
    SECTIONS,
    PICTURES,
)
