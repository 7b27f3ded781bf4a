"""The report: what it refuses, what it says, and that nothing in a result can break out of it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import UserError
from eval.report import __main__ as command
from eval.report import frontier, plain, write_report
from eval.report.blocks import Figure, Table
from eval.report.charts import log_ticks, short
from eval.report.folder import read_folder
from eval.report.page import PLOTLY, embedded
from eval.report.palette import PUBLISHED, Palette
from eval.report.strips import scale_of, strip
from eval.report.tables import difference_cell, figure_cell, number
from eval.report.writing import controllers, page
from tests import report_folder
from tests.report_folder import NAMES

PAGE = Path(__file__).parents[1] / "eval" / "report" / "page"


def changed(folder: Path, name: str, **of: Any) -> None:
    path = folder / f"{name}.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, **of}), encoding="utf-8")


def words(text: str) -> str:
    """What a reader sees, scripts and styles left out."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


# -- what is refused -------------------------------------------------------------------------------


def test_an_empty_folder_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no results; make some with python evaluate\.py"):
        write_report(tmp_path)


def test_an_unfinished_part_is_refused(tmp_path: Path) -> None:
    report_folder.write(tmp_path, "matrix", "frontier")
    changed(tmp_path, "frontier", complete=False)
    with pytest.raises(UserError, match="unfinished"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["adaptation.unfinished", "matrix.pieces"])
def test_a_run_that_was_cut_is_refused(tmp_path: Path, name: str) -> None:
    report_folder.write(tmp_path, "frontier")
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=f"holds an unfinished run .{name}.: repeat its command"):
        write_report(tmp_path)


def test_parts_of_two_versions_are_refused(tmp_path: Path) -> None:
    report_folder.write(tmp_path, "matrix", "frontier")
    changed(tmp_path, "frontier", versions={**report_folder.VERSIONS, "revision": "def"})
    with pytest.raises(UserError, match=r"matrix and frontier differ in revision \(abc and def\)"):
        write_report(tmp_path)


def test_fidelity_may_be_older(tmp_path: Path) -> None:
    assert write_report(report_folder.write(tmp_path, "matrix", "fidelity")).is_file()


def test_the_command_tells_a_mistake_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.json").write_text("{", encoding="utf-8")
    assert command.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    report_folder.write(tmp_path, "lossless")
    (tmp_path / "results.json").unlink()
    assert command.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"report      {tmp_path / 'report.html'}\n"


# -- what is said ----------------------------------------------------------------------------------


def test_sections_stand_in_order_with_the_verdict_first(tmp_path: Path) -> None:
    text = write_report(report_folder.write(tmp_path)).read_text(encoding="utf-8")
    found = re.findall(r'<section id="([\w-]+)">', text)
    assert found == [
        "verdict", "load", "tails", "adaptation", "frontier", "who-pays", "cost", "bad-runs",
        "classes", "lossless", "fidelity", "made-with",
    ]  # fmt: skip


def test_each_part_alone_makes_a_report(tmp_path: Path) -> None:
    for name in report_folder.PARTS:
        (tmp_path / name).mkdir()
        text = write_report(report_folder.write(tmp_path / name, name)).read_text(encoding="utf-8")
        assert f"python -m eval.{name} --x" in text or name == "fidelity"


def test_a_winner_is_named_only_where_it_is_shown(tmp_path: Path) -> None:
    found = read_folder(report_folder.write(tmp_path, "matrix"))
    verdict = page(found).sections[0]
    table = next(b for b in verdict.blocks if isinstance(b, Table) and b.head[0] == "regime")
    rows = {row[0].text: row for row in table.rows if len(row) > 1}
    assert rows["0.5"][2].text == NAMES[0] and rows["0.5"][2].key == NAMES[0]
    # Of two controllers that are level nobody is the choice.
    assert rows["1.1"][2].text == "no difference shown" and not rows["1.1"][2].key
    assert rows["0.5"][3].text == "90.0 [85.0,\u00a095.0]"


def test_a_difference_whose_sign_is_not_shown_is_quiet() -> None:
    assert difference_cell(Figure(2.0, -1.0, 5.0)).tone == "quiet"
    assert difference_cell(Figure(2.0, 1.0, 5.0)).tone == ""
    assert difference_cell(Figure(2.0)).tone == "quiet"  # one seed shows no sign
    assert difference_cell(Figure(-0.01, -1, 1), 1).text == "+0.0 [−1.0,\u00a0+1.0]"


def test_a_controller_looks_the_same_everywhere(tmp_path: Path) -> None:
    found = read_folder(report_folder.write(tmp_path))
    assert controllers(found) == list(NAMES)
    colours: dict[str, set[str]] = {}
    for section in page(found).sections:
        for block in section.blocks:
            for chart in getattr(block, "charts", ()):
                for trace in chart.data:
                    drawn = (trace.get("marker") or trace["line"]).get("color")
                    if drawn:
                        colours.setdefault(trace["meta"], set()).add(drawn)
    assert all(len(of) == 1 for of in colours.values())
    assert len(set(map(frozenset, colours.values()))) == len(colours) == 3  # with the oracle


def test_many_controllers_are_told_apart() -> None:
    palette = Palette(f"c{i}" for i in range(24))
    assert len({palette.look(f"c{i}") for i in range(24)}) == 24
    assert palette.look(PUBLISHED).colour not in {palette.look(n).colour for n in palette.names}


# -- the page --------------------------------------------------------------------------------------


def test_names_break_out_of_nothing(tmp_path: Path) -> None:
    text = write_report(report_folder.write(tmp_path)).read_text(encoding="utf-8")
    assert "<b>sly" not in text
    assert "<b>sly" in re.sub("&lt;", "<", words(text).replace("&gt;", ">"))
    assert embedded("</script>") == '"\\u003c/script>"'
    blocks = re.findall(r"<script\b[^>]*>", text)
    assert len(blocks) == 3 and text.lower().count("</script") == 3


def test_nothing_is_loaded_from_anywhere(tmp_path: Path) -> None:
    text = write_report(report_folder.write(tmp_path)).read_text(encoding="utf-8")
    assert "default-src 'none'" in text and "connect-src" not in text
    own = text.replace((PAGE / PLOTLY).read_text(encoding="utf-8"), "")
    assert not re.findall(r"https?://", own)
    assert text.count("plotly.js (basic - minified)") == 1
    assert len(text.encode()) < 8 * 2**20


def test_charts_are_of_plotlys_schema(tmp_path: Path) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    sections = page(read_folder(report_folder.write(tmp_path))).sections
    charts = [c for s in sections for b in s.blocks for c in getattr(b, "charts", ())]
    assert len(charts) > 20
    for chart in charts:
        graph_objects.Figure(data=list(chart.data), layout=chart.layout)


def test_pictures_and_scales_by_hand() -> None:
    assert scale_of([Figure(2, 1, 4), Figure(float("inf")), Figure(float("nan"))]) == (1, 4)
    assert scale_of([]) == (0.0, 1.0)
    drawn = strip(Figure(1.5, 1, 2), (1.0, 2.0), "#000000")
    assert 'x1="5.0" x2="103.0"' in drawn and 'cx="54.0"' in drawn
    assert strip(Figure(float("nan")), (0, 1), "#000000") == ""
    assert log_ticks([0.02, 0.5])["tickvals"] == pytest.approx([0.02, 0.05, 0.1, 0.2, 0.5])
    assert [short(x) for x in (0.0123, 4.567, 1234.5, float("inf"))] == [
        "0.0123", "4.57", "1,234", "∞",
    ]  # fmt: skip
    assert number(-1234.5, 1) == "−1,234.5" and number(-0.0, 1) == "0.0"


def test_a_wait_without_an_end_is_endless_and_nothing_to_count_is_a_dash() -> None:
    metrics = {"requests": 3, "attainment": None, "ttft_s": {"p50": None}}
    data = {"controllers": {"it": {"runs": [{"metrics": {"by_class": {"chat": metrics}}}] * 2}}}
    rng = np.random.default_rng(0)
    share = plain._over_seeds(data, "it", "chat", lambda m: m["attainment"], rng)
    wait = plain._over_seeds(data, "it", "chat", lambda m: m["ttft_s"]["p50"], rng, math.inf)
    assert figure_cell(share).text == "–" and figure_cell(wait).text == "∞"


def test_a_price_is_told_beside_its_own_demand() -> None:
    data = report_folder.frontier()
    of = data["cells"][NAMES[0]]["none"]
    unknown = {**of[0]["all"], "waste": {"value": None, "low": None, "high": None}}
    data["cells"][NAMES[0]]["none"] = [{**of[0], "all": unknown}, of[1]]
    chart = frontier._price(data, *frontier.PRICES[1], Palette(NAMES))
    assert "at 1.6 ×" in chart.data[0]["text"][0] and len(chart.data[0]["text"]) == 1


def test_a_bounded_figure_stays_open_where_it_is() -> None:
    assert Figure(95.0, 80.0, 110.0).within(0, 100) == Figure(95.0, 80.0, 100)
    assert not Figure(95.0, float("-inf"), float("inf")).within(0, 100).has_interval
