"""The page itself: sections into one HTML file that asks nothing of any network.

Style, script and Plotly's smallest bundle (`page/`) are embedded once; a content security policy in
the file forbids the browser to load anything else, whatever a result may contain.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from eval.report.blocks import Chart, Section
from eval.report.marks import mark
from eval.report.palette import Palette

PLOTLY = "plotly-basic.min.js"
"""plotly.js-basic-dist-min of npm: a quarter of the whole library, with all that is drawn here."""


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    about: str
    """What was evaluated where, in a line."""
    sections: Sequence[Section]
    palette: Palette


def render(page: Page) -> str:
    """The file's text."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    charts: list[dict[str, Any]] = []

    def placed(chart: Chart) -> int:
        """Its number on the page; what is drawn there goes with the others."""
        charts.append({"data": list(chart.data), "layout": chart.layout})
        return len(charts) - 1

    def marked(name: str) -> str:
        return mark(page.palette.look(name))

    template = environment.from_string(_asset("report.html.j2"))
    body = template.render(page=page, style=_asset("style.css"), placed=placed, mark=marked)
    scripts = {
        "CHARTS": f'<script type="application/json" id="charts">{embedded(charts)}</script>',
        "PLOTLY": f"<script>{_script(PLOTLY)}</script>" if charts else "",
        "SCRIPT": f"<script>{_script('report.js')}</script>",
    }
    for name, text in scripts.items():
        body = body.replace(f"<!--{name}-->", text, 1)
    return body


def embedded(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _asset(name: str) -> str:
    return files("eval.report").joinpath("page", name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    text = _asset(name)
    if "</script" in text.lower():
        raise ValueError(f"{name} holds a closing script tag and cannot be embedded")
    return text
