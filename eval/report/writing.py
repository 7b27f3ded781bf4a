"""A folder of results into its report.html: which sections there are, and in what order."""

from __future__ import annotations

from pathlib import Path

from engine.atomic_write import write_named
from eval.report import adaptation, by_target, fidelity, frontier, matrix, plain, proof, provenance
from eval.report.blocks import Section
from eval.report.folder import FIDELITY, PLAIN, Found, read_folder
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
    made: list[Section | None] = []
    if data := found.get("matrix"):
        made += [
            matrix.verdict(data, palette),
            matrix.against_load(data, palette),
            by_target.tails(data, palette),
        ]
    if data := found.get(PLAIN):
        made += plain.sections(data, palette, is_first=not made)
    if data := found.get("adaptation"):
        made.append(adaptation.section(data, palette))
    if data := found.get("frontier"):
        made += [frontier.section(data, palette), frontier.audit(data)]
    if data := found.get("matrix"):
        made += [
            by_target.cost(data, palette),
            by_target.bad_runs(data, palette),
            by_target.audit(data),
        ]
    if data := found.get("lossless"):
        made.append(proof.section(data))
    if data := found.get(FIDELITY):
        made.append(fidelity.section(data))
    return [section for section in made if section is not None]


def controllers(found: Found) -> list[str]:
    """Every controller, in the order of the parts: so each has one look on the whole page."""
    named = (data.get("controllers") or () for data in found.by_name.values())
    return list(dict.fromkeys(name for names in named for name in names))


def title(found: Found) -> str:
    """What was asked, in a line."""
    if data := found.get("matrix"):
        return "Which controller for which regime"
    if data := found.get(PLAIN):
        names = list(data["controllers"])
        few = len(names) < 3
        return " against ".join(names) if few else f"{len(names)} controllers, one workload"
    titles = {"adaptation": "After a change", "frontier": "Past what can be served"}
    titles |= {"lossless": "Is the text still the target's", FIDELITY: "Live against replay"}
    return next(words for name, words in titles.items() if name in found.by_name)


def about(found: Found) -> str:
    """What was served where."""
    if data := found.get("matrix"):
        return (
            f"{data['cells']:,} cells × {len(data['controllers'])} controllers, "
            f"{data['seeds_a_cell']} seeds a cell; times, power and memory are modelled"
        )
    if data := found.get(PLAIN):
        return str(data["title"])
    return f"What lies in {found.folder.name}: {', '.join(found.by_name)}"
