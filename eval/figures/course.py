"""A paper's panels into files: one page, and a picture of each panel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from engine.atomic_write import write_atomic, write_named
from engine.errors import UserError
from eval.figures import adaserve, others
from eval.figures.measured import Measured
from eval.report.blocks import Chart, Panels, Section, Words
from eval.report.page import Page, render
from eval.report.palette import PUBLISHED, Palette
from eval.slug import slug

Draw = Callable[[Measured, Palette], list[Chart]]
PAPERS: dict[str, tuple[str, str, Draw]] = {
    "adaserve": (
        "AdaServe, figures 8 to 15",
        "Replay of the paper's own arrivals, synthetic acceptance of its pair, the artifact's "
        "profile of 8 × A100-40GB; the paper measured on 4 × A100-80GB.",
        adaserve.charts,
    ),
    "adaptivespec": (
        "AdaptiveSpec",
        "Live engine, SmolLM2-135M with its EAGLE-3 head; the paper's constants are not public and "
        "its 56 % were measured on other models.",
        others.adaptivespec,
    ),
    "learning-to-draft": (
        "Learning-to-Draft",
        "Live engine, batch 1; the paper measured larger models over EAGLE-3's own tree.",
        others.learning_to_draft,
    ),
}
"""By name: title, what the figures were measured on, and what draws them."""
PAGE = "figures.html"


def write_figures(paper: str, found: Measured, out: Path, with_pictures: bool = True) -> list[Path]:
    """Write the page, and SVG and PNG of every panel that has a picture; all paths.

    Raises UserError.
    """
    title, about, draw = PAPERS[paper]
    palette = Palette()
    charts = draw(found, palette)
    section = Section(
        "figures",
        "Beside the published values",
        "Figures",
        "Open grey diamonds are the paper's; what they sit on was measured here.",
        [Panels(charts, keys(charts), 420), Words([f"Measured rows: {found.folder}"], tone="note")],
    )
    paths = [out / PAGE]
    write_named(paths[0], render(Page(title, about, [section], palette)))
    for chart in charts if with_pictures else ():
        if not chart.data:
            continue
        from eval.figures.still import pictures

        for ending, content in pictures(chart).items():
            paths.append(out / f"{slug(chart.title.lower())}.{ending}")
            try:
                write_atomic(paths[-1], content)
            except OSError as error:
                raise UserError(f"{paths[-1]} cannot be written ({error.strerror})") from error
    return paths


def keys(charts: Sequence[Chart]) -> list[str]:
    """Every contender that is drawn, and what was published last."""
    names = [str(t["name"]) for c in charts for t in c.data if t.get("name")]
    found = [name for name in dict.fromkeys(names) if name != PUBLISHED]
    return [*found, PUBLISHED]
