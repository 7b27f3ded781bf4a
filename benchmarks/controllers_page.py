"""docs/results/controllers.md from the file that `python -m benchmarks.controllers` wrote.

Every table stands under the command that measures it, with when, where and at what revision that
was; what was not measured says why. Pictures go beside it, into docs/pictures for a page in
docs/results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import relpath
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.adaserve_sweeps import RUN as POINTS
from benchmarks.controllers_pictures import PICTURES
from benchmarks.figures import Figure, Row
from benchmarks.results import Results
from benchmarks.show import HEAD, as_markdown
from benchmarks.sweeps_account import account
from engine.atomic_write import write_named


class Section(NamedTuple):
    """A table of the page."""

    title: str
    only: tuple[str, ...]
    """Figures by name or beginning, as `--only` takes them."""
    about: str
    picture: str = ""
    """File name of its picture, of `controllers_pictures`, and what it shows."""
    shows: str = ""


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
        "The pair that ships, on this machine, over prompts of GSM8K, MATH-500 and HumanEval. "
        "AdaptiveSpec has its default sizes, up to depth 8 and 64 nodes, which nobody chose for "
        "this machine; the best fixed tree is chosen on it, on other prompts. Answers are cut at "
        "144 tokens. The noise floor compares answers in float32 and in bfloat16 as the frontier "
        "compares those with and without a margin.",
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


def write_page(page: Path, results: Path, figures: Sequence[Figure]) -> None:
    """Write the page and its pictures. Raises UserError for a file of results that is none."""
    loaded = Results.load(results)
    rows = {row.name: row for row in loaded.table(figures)}
    folder = (page.parent.parent if page.parent.name == "results" else page.parent) / "pictures"
    drawn = {name: text for name, draw in PICTURES.items() if (text := draw(rows)) is not None}
    if drawn:
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in drawn.items():
        write_named(folder / name, text)
    links = {name: relpath(folder / name, page.parent) for name in drawn}
    write_named(page, page_of(loaded, figures, links))


def page_of(
    results: Results, figures: Sequence[Figure], pictures: Mapping[str, str] | None = None
) -> str:
    """The page as Markdown; `pictures` says by file name how the page links to it."""
    rows = {row.name: row for row in results.table(figures)}
    links = pictures or {}
    lines = [
        "# What the controllers do",
        "",
        "Written by `python -m benchmarks.controllers --write docs/results/controllers.md` from "
        "what it measured; docs/evaluation.md has the definitions.",
    ]
    for section in SECTIONS:
        shown = [rows[f.name] for f in figures if belongs(f.name, section.only)]
        lines += ["", f"## {section.title}", "", section.about, ""]
        lines += ["```", f"python -m benchmarks.controllers --only {' '.join(section.only)}", "```"]
        lines += ["", *measured_by(shown, results.runs), "", *HEAD.split("\n")]
        lines += [as_markdown(row) for row in shown]
        if section.picture in links:
            lines += ["", f"![{section.shows}]({links[section.picture]})"]
        tables = [table for row in shown if row.name == POINTS and (table := account(row))]
        lines += [line for table in tables for line in ("", *table)]
        notes = [f"- {row.title}: {row.note}" for row in shown if row.note]
        lines += ["", *notes] if notes else []
    return "\n".join(lines) + "\n"


def belongs(name: str, only: Sequence[str]) -> bool:
    """Whether `--only` would take the figure."""
    return any(name == word or name.startswith(f"{word}_") for word in only)


def measured_by(rows: Sequence[Row], runs: dict[str, Any]) -> list[str]:
    """When and where, a line for each run that the rows come from."""
    lines = []
    for run in dict.fromkeys(row.run for row in rows if row.run):
        versions = runs.get(run, {}).get("versions", {})
        hardware = versions.get("hardware", {})
        short = " (short runs)" if any(row.quick for row in rows if row.run == run) else ""
        lines.append(
            f"Measured {run}{short} on {hardware.get('processor', 'an unknown processor')}, "
            f"{hardware.get('cores', '?')} cores, revision {versions.get('revision')}."
        )
    return lines or ["Not measured yet."]
