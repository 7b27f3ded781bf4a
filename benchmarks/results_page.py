"""A page of docs/results from the file that a benchmark wrote: a section, command and table each.

Every table stands under the command that measures it, with when, where and at what revision that
was; what was not measured says why. Pictures go beside it, into docs/pictures for a page in
docs/results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.command import BenchmarkConfig, command
from benchmarks.figures import Figure, Row
from benchmarks.results import Results
from benchmarks.show import HEAD, as_markdown
from engine.atomic_write import write_named
from train.command_line import parse


class Section(NamedTuple):
    """A table of the page."""

    title: str
    only: tuple[str, ...]
    """Figures by name or beginning, as `--only` takes them."""
    about: str
    picture: str = ""
    """File name of its picture, among the page's, and what it shows."""
    shows: str = ""


class Page(NamedTuple):
    """A benchmark's page."""

    title: str
    benchmark: str
    """As in `python -m benchmarks.NAME`; the page is docs/results/NAME.md."""
    see: str
    """Where to read on: the end of the sentence that says who wrote the page."""
    sections: Sequence[Section]
    pictures: Mapping[str, Callable[[Mapping[str, Row]], str | None]]
    """By file name, who draws it from the rows; None where they do not suffice."""
    table_of: Callable[[Row], Sequence[str]] = lambda _: ()
    """Lines of a further table of a row, none for most."""


@dataclass(frozen=True)
class PagedConfig(BenchmarkConfig):
    """Of a benchmark whose results are a page of the documentation."""

    write: Path | None = None
    """Page to make of the results afterwards, for example docs/results/NAME.md."""


def command_with_page(
    figures: Sequence[Figure], kind: type[PagedConfig], page: Callable[[], Page]
) -> None:
    """Parse, measure, judge, and write the page, if one is asked for, whatever the verdict."""
    config = parse(kind, sys.argv[1:], f"python -m benchmarks.{kind.name}")
    try:
        command(figures, kind)
    finally:
        if config.write is not None:
            write_page(page(), config.write, config.results, figures)


def write_page(of: Page, page: Path, results: Path, figures: Sequence[Figure]) -> None:
    """Write the page and its pictures. Raises UserError for a file of results that is none."""
    loaded = Results.load(results)
    rows = {row.name: row for row in loaded.table(figures)}
    folder = (page.parent.parent if page.parent.name == "results" else page.parent) / "pictures"
    drawn = {name: text for name, draw in of.pictures.items() if (text := draw(rows)) is not None}
    if drawn:
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in drawn.items():
        write_named(folder / name, text)
    links = {name: relpath(folder / name, page.parent) for name in drawn}
    page.parent.mkdir(parents=True, exist_ok=True)
    write_named(page, page_of(of, loaded, figures, links))


def page_of(
    of: Page,
    results: Results,
    figures: Sequence[Figure],
    pictures: Mapping[str, str] | None = None,
) -> str:
    """The page as Markdown; `pictures` says by file name how the page links to it."""
    rows = {row.name: row for row in results.table(figures)}
    links, command = pictures or {}, f"python -m benchmarks.{of.benchmark}"
    lines = [
        f"# {of.title}",
        "",
        f"Written by `{command} --write docs/results/{of.benchmark}.md` from what it measured; "
        f"{of.see}.",
    ]
    for section in of.sections:
        shown = [rows[f.name] for f in figures if belongs(f.name, section.only)]
        lines += ["", f"## {section.title}", "", section.about, ""]
        lines += ["```", f"{command} --only {' '.join(section.only)}", "```"]
        lines += ["", *measured_by(shown, results.runs), "", *HEAD.split("\n")]
        lines += [as_markdown(row) for row in shown]
        if section.picture in links:
            lines += ["", f"![{section.shows}]({links[section.picture]})"]
        tables = [table for row in shown if (table := of.table_of(row))]
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
