"""How soon a report is there in a real browser: one with every part, from quick runs of each.

Quick runs draw as many charts and tables as long ones; only the figures in them are wilder. Opened
is a page when its load event has ended, by which time all that is in sight is drawn.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks import browser
from benchmarks.bench import Bench
from benchmarks.browser import Visit
from benchmarks.command import ROOT
from benchmarks.figures import Result, UnmeasuredError

PARTS: dict[str, tuple[str, ...]] = {
    "matrix": ("evaluate.py", "--matrix", "small", "--seeds", "1", "--requests", "10"),
    "adaptation": ("-m", "eval.adaptation_test", "--quick", "--seeds", "2"),
    "frontier": ("-m", "eval.frontier", "--quick", "--seeds", "2"),
}
VISITS, MOST_MIB = 5, 8.0
WINDOWS = {"desk": (1280, 900), "phone": (390, 844)}


def measured(bench: Bench, _: str) -> Result:
    """Seconds until the page is there, the median of several cold starts."""
    path = browser.find()
    if path is None:
        raise UnmeasuredError(browser.HOW_TO_GET)
    from eval.report import write_report

    with tempfile.TemporaryDirectory(prefix="draftgym-report-") as work:
        folder = Path(work) / "results"
        for name, command in PARTS.items():
            bench.say(f"report: a quick {name}")
            _run([*command, "--out", str(folder)])
        report = write_report(folder)
        bench.say("report: opening it")
        return opened(report, path, 1 if bench.quick else VISITS)


def opened(report: Path, path: Path, visits: int) -> Result:
    """What opening `report` comes to; each visit starts a browser of its own."""
    found: dict[str, list[Visit]] = {name: [] for name in WINDOWS}
    for _ in range(visits):
        for name, (wide, high) in WINDOWS.items():
            with browser.running(path) as tab:
                found[name].append(tab.open(report, wide, high))
    seconds = {name: median(visit.load_s for visit in of) for name, of in found.items()}
    drawn_s = median(visit.drawn_s for visit in found["desk"])
    mib = report.stat().st_size / 2**20
    every = [visit for of in found.values() for visit in of]
    wrong = [complaint for visit in every for complaint in visit.complaints]
    asked = [url for visit in every for url in visit.requests]
    broken = [f"console: {wrong[0]}"] if wrong else []
    broken += [f"asked for {asked[0]}"] if asked else []
    broken += [f"{mib:.1f} MiB"] if mib >= MOST_MIB else []
    broken += ["the page is wider than a phone"] if _too_wide(found["phone"]) else []
    return Result(
        max(seconds.values()),
        f"{max(seconds.values()):.2f} s",
        f"{mib:.1f} MiB; on a desk {seconds['desk']:.2f} s, on a phone {seconds['phone']:.2f} s, "
        f"every chart drawn after {drawn_s:.1f} s; {len(wrong)} console errors, {len(asked)} "
        f"requests",
        {"seconds": seconds, "drawn_s": drawn_s, "mib": mib, "visits": visits},
        broken="; ".join(broken),
    )


def _too_wide(visits: list[Visit]) -> bool:
    return any(visit.wide_px > visit.room_px for visit in visits)


def _run(command: list[str]) -> None:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise UnmeasuredError(f"python {' '.join(command)} failed: {said}")
