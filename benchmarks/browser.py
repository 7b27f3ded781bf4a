"""A headless Chromium that opens a file: what it said, asked of a network, and how long it took.

Spoken to through its DevTools protocol over a pipe, with the standard library alone. It is found by
$DRAFTGYM_CHROMIUM or on PATH; Debian and Ubuntu have it as `chromium-headless-shell`.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from engine.errors import UserError

VARIABLE = "DRAFTGYM_CHROMIUM"
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
HOW_TO_GET = (
    f"no Chromium was found; apt-get install chromium-headless-shell, or name one by ${VARIABLE}"
)
LOCAL = ("file:", "data:", "blob:", "about:")
PATIENCE_S = 180.0
# Nothing of the browser's own may reach for a network while it is watched.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-default-apps", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
READY = "document.readyState === 'complete' && document.documentElement.dataset.drawn === 'all'"
TIMES = """(() => {
  const [page] = performance.getEntriesByType("navigation");
  return {load: page.loadEventEnd, drawn: performance.now(),
          wide: document.documentElement.scrollWidth};
})()"""


@dataclass
class Visit:
    """What a page did."""

    complaints: list[str] = field(default_factory=list)
    """Console errors and warnings, exceptions, and what a policy forbade."""
    requests: list[str] = field(default_factory=list)
    """Addresses outside the file that were asked for, whether or not anything answered."""
    load_s: float = 0.0
    """Navigation to the end of the load event: what is in sight is drawn by then."""
    drawn_s: float = 0.0
    """Until every chart is there."""
    wide_px: int = 0
    room_px: int = 0
    """Width of the page's content, and that asked for: a phone zooms out from what is wider."""


def find() -> Path | None:
    """The browser's file, None where there is none. Raises UserError for a wrong variable."""
    if named := os.environ.get(VARIABLE):
        found = shutil.which(named)
        if found is None:
            raise UserError(f"${VARIABLE} names {named}, which is no program; name a Chromium")
        return Path(found)
    paths = (shutil.which(name) for name in NAMES)
    return next((Path(path) for path in paths if path), None)


class Browser:
    """A running browser with one tab."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._rest, self._number = to, back, b"", 0
        self._events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self.call("Network.emulateNetworkConditions", **offline)

    _session: str | None = None

    def open(self, file: Path, wide: int = 1280, high: int = 900, scheme: str = "light") -> Visit:
        """Open a file in a window of that size, with the network off, until all is drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=wide, height=high, deviceScaleFactor=1, mobile=wide < 600,
        )  # fmt: skip
        self._emulate(scheme)
        self._events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        self._until(lambda: bool(self.evaluate(READY)))
        times = self.evaluate(TIMES)
        visit = Visit(
            load_s=times["load"] / 1e3, drawn_s=times["drawn"] / 1e3,
            wide_px=times["wide"], room_px=wide,
        )  # fmt: skip
        for event in self._events:
            _note(visit, event["method"], event["params"])
        return visit

    def evaluate(self, script: str) -> Any:
        """The value of an expression on the page."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{script}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def screenshot(self, to: Path, whole: bool = True) -> None:
        """The page as PNG, all of it or what is in sight."""
        done = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        to.write_bytes(base64.b64decode(done["data"]))

    def print(self, to: Path) -> None:
        """The page as it is printed, on A4."""
        done = self.call(
            "Page.printToPDF", printBackground=True, preferCSSPageSize=True,
            paperWidth=8.27, paperHeight=11.69,
        )  # fmt: skip
        to.write_bytes(base64.b64decode(done["data"]))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error'].get('message')}")
                result: dict[str, Any] = answer["result"]
                return result
            if "method" in answer:
                self._events.append(answer)

    def _emulate(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def _until(self, is_so: Callable[[], bool]) -> None:
        end = monotonic() + PATIENCE_S
        while not is_so():
            if monotonic() > end:
                raise TimeoutError(f"the page was not drawn within {PATIENCE_S:g} s")
            select.select([self._back], [], [], 0.02)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._back], [], [], PATIENCE_S)[0]:
                raise TimeoutError(f"the browser did not answer within {PATIENCE_S:g} s")
            came = os.read(self._back, 1 << 20)
            if not came:
                raise RuntimeError("the browser ended before it answered")
            self._rest += came
        message, self._rest = self._rest.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextmanager
def running(path: Path) -> Iterator[Browser]:
    """A browser of its own, with a profile that goes when it ends."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        pid, to, back = _started([str(path), *FLAGS, f"--user-data-dir={profile}"])
        try:
            yield Browser(to, back)
        finally:
            os.close(to)
            os.close(back)
            _ended(pid)


def _started(command: list[str]) -> tuple[int, int, int]:
    """Start it: its process, what it reads from, what it writes to.

    The protocol wants file descriptors 3 and 4, whatever they are here.
    """
    reads, to = os.pipe()
    back, writes = os.pipe()
    clear = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (reads, writes)]
    nowhere = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, nowhere, n) for n in (0, 1, 2)]
    actions += [(os.POSIX_SPAWN_DUP2, end, n) for end, n in zip(clear, (3, 4), strict=True)]
    try:
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    finally:
        for end in (reads, writes, nowhere, *clear):
            os.close(end)
    return pid, to, back


def _ended(pid: int) -> None:
    """It goes by itself when its pipe is closed; one that stays is ended."""
    end = monotonic() + 5.0
    while monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _note(visit: Visit, method: str, params: dict[str, Any]) -> None:
    if method == "Runtime.exceptionThrown":
        details = params["exceptionDetails"]
        visit.complaints.append(str(details.get("exception", {}).get("description", details)))
    elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
        said = (str(a.get("value", a.get("description"))) for a in params["args"])
        visit.complaints.append(" ".join(said))
    elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
        visit.complaints.append(params["entry"]["text"])
    elif method == "Network.requestWillBeSent":
        url = params["request"]["url"]
        if not url.startswith(LOCAL):
            visit.requests.append(url)
