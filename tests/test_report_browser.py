"""The report in a real browser: silent, offline, quick, and whole on a phone and on paper."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import browser
from benchmarks.evaluation_report import opened
from eval.report import write_report
from tests import report_folder

PATH = browser.find()
pytestmark = pytest.mark.skipif(PATH is None, reason=browser.HOW_TO_GET)
DRAWN = "document.querySelectorAll('.chart .main-svg').length"
FILL = "getComputedStyle(document.querySelector('.xtick text')).fill"


@pytest.fixture(scope="module")
def tab() -> Iterator[browser.Browser]:
    assert PATH is not None
    with browser.running(PATH) as made:
        yield made


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(report_folder.write(tmp_path_factory.mktemp("report")))


@pytest.mark.parametrize(
    ("name", "wide", "scheme"), [("light", 1280, "light"), ("dark", 1280, "dark"),
                                 ("phone", 390, "light")]
)  # fmt: skip
def test_it_opens_without_a_complaint_or_a_request(
    tab: browser.Browser, report: Path, name: str, wide: int, scheme: str
) -> None:
    visit = tab.open(report, wide, scheme=scheme)
    assert visit.complaints == []
    assert visit.requests == []
    assert visit.wide_px == visit.room_px == wide
    charts = tab.evaluate("document.querySelectorAll('.chart').length")
    assert charts > 20 and tab.evaluate(DRAWN) >= charts
    tab.screenshot(report.with_name(f"{name}.png"))
    content = report.with_name(f"{name}.png").read_bytes()
    assert struct.unpack(">I", content[16:20])[0] == wide and len(content) > 100_000


def test_charts_follow_the_scheme(tab: browser.Browser, report: Path) -> None:
    fills = set()
    for scheme in ("light", "dark"):
        tab.open(report, scheme=scheme)
        fills.add(tab.evaluate(FILL))
    assert len(fills) == 2


def test_a_chosen_controller_is_set_off_everywhere(tab: browser.Browser, report: Path) -> None:
    tab.open(report)
    tab.evaluate("document.querySelector('.key').click()")
    faded = "[...document.querySelectorAll('.chart')].filter(c => c.data.some(t => t.opacity < 1))"
    assert tab.evaluate(f"{faded}.length") > 20
    tab.evaluate("document.querySelector('.key').click()")
    assert tab.evaluate(f"{faded}.length") == 0


def test_it_prints(tab: browser.Browser, report: Path) -> None:
    tab.open(report, scheme="dark")
    tab.print(report.with_name("print.pdf"))
    content = report.with_name("print.pdf").read_bytes()
    assert content.startswith(b"%PDF") and len(content) > 50_000


def test_a_broken_page_is_noticed(tab: browser.Browser, tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text(
        "<html><meta name='viewport' content='width=device-width'><script>"
        "document.documentElement.dataset.drawn = 'all';"
        "console.error('of its own'); fetch('http://127.0.0.1:9/x').catch(() => 0);"
        "setTimeout(() => { throw new Error('later') }, 0)</script>"
        "<img src='http://127.0.0.1:9/y.png'><p style='width: 900px'>wide</p>",
        encoding="utf-8",
    )
    visit = tab.open(page, 390)
    assert "of its own" in " ".join(visit.complaints) and "later" in " ".join(visit.complaints)
    assert {url.rsplit("/", 1)[1] for url in visit.requests} == {"x", "y.png"}
    assert visit.wide_px > visit.room_px


def test_the_benchmark_reads_a_visit(report: Path) -> None:
    assert PATH is not None
    result = opened(report, PATH, visits=1)
    assert result.broken == "" and result.value > 0
    assert "0 console errors, 0 requests" in result.note
