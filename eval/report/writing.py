"""A folder of results into its report.html: which sections there are, and in what order."""

from __future__ import annotations

from pathlib import Path

from engine.atomic_write import write_named
from eval.report import plain, provenance
from eval.report.blocks import Section
from eval.report.folder import PLAIN, Found, read_folder
from eval.report.page import Page, render
from eval.report.palette import Palette

FILE = "report.html"


def write_report(folder: Path) -> Path:
    """Write the report of what lies in `folder` beside it; returns its path. Raises UserError."""
    found = read_folder(folder)
    path = folder / FILE
    write_named(path, render(page(found)))
    return path


def page(found: Found) -> Page:
    """The page of all that was found."""
    palette = Palette(controllers(found))
    made = [*sections(found, palette), provenance.section(found)]
    return Page(title(found), about(found), made, palette)


def sections(found: Found, palette: Palette) -> list[Section]:
    """Those that the folder has something for, the verdict first."""
    made: list[Section] = []
    if data := found.get(PLAIN):
        made.extend(plain.sections(data, palette))
    return made


def controllers(found: Found) -> list[str]:
    """Every controller, in the order of the parts: so each has one look on the whole page."""
    return list(found.by_name.get(PLAIN, {}).get("controllers", ()))


def title(found: Found) -> str:
    """What was asked, in a line."""
    data = found.get(PLAIN)
    if data is None:
        return found.folder.name
    names = list(data["controllers"])
    return " against ".join(names) if len(names) < 3 else f"{len(names)} controllers, one workload"


def about(found: Found) -> str:
    """What was served where."""
    data = found.get(PLAIN)
    return data["title"] if data else ""
