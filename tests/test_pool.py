"""Processes: all comes back, a stop ends it, and nobody outlives the first one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from eval.pool import each_made

ROOT = Path(__file__).resolve().parents[1]


def test_every_task_comes_back_with_what_was_made_of_it() -> None:
    assert dict(each_made(abs, [-3, 2, -1], processes=2)) == {-3: 3, 2: 2, -1: 1}


def test_nothing_is_begun_after_a_stop() -> None:
    seen: list[int] = []
    for task, _ in each_made(abs, range(100), processes=1, stopped=lambda: bool(seen)):
        seen.append(task)
    assert 1 <= len(seen) <= 3


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_a_process_ends_when_the_first_one_is_killed() -> None:
    code = "from time import sleep; from eval.pool import each_made\n"
    code += "for _ in each_made(sleep, [0.01, 600.0], processes=1): print('begun', flush=True)"
    first = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None and first.stdout.readline() == "begun\n"
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children")
    below = [int(pid) for pid in children.read_text().split()]
    first.send_signal(signal.SIGKILL)
    first.wait()
    until = monotonic() + 20.0
    while (alive := [pid for pid in below if _runs(pid)]) and monotonic() < until:
        sleep(0.05)
    assert below and not alive


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return False
    return state != "Z"  # an ended one that nobody waited for
