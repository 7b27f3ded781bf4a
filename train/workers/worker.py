"""One worker process as the trainer holds it: started, asked, listened to, ended.

How often one is started again, and what training makes of its death, is `train.workers.vector`'s.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import UserError
from train.workers.failures import Died
from train.workers.process import TELL_STACK, Failure, Recipe, serve

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

# Forked, a child would inherit torch's and Numba's thread pools without their threads, and CUDA
# not at all.
SPAWN = multiprocessing.get_context("spawn")
CLOSING_S = 5.0
"""How long an engine may take to end by itself."""
LOADING = 6
"""Times the patience that is had with a step is that with a start, which loads networks."""
STACK_S = 2.0
"""How long a worker that hangs may take to say where."""


class Worker:
    """A process with an engine, or none yet."""

    def __init__(self, recipe: Recipe, faults: Path, patience_s: float) -> None:
        """`faults` is a file for what kills the interpreter itself.

        Who does not answer for `patience_s` hangs; with its first answer it may take longer.
        """
        self._recipe, self._faults, self._patience_s = recipe, faults, patience_s
        self._waiting_s = 0.0
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None

    @property
    def pid(self) -> int | None:
        """Of the process; None where there is none."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Begin with a process; does not wait for its engine."""
        self._faults.parent.mkdir(parents=True, exist_ok=True)
        self._pipe, theirs = SPAWN.Pipe()
        # A daemon: whatever ends the trainer in an orderly way ends it. To all else the pipe's
        # end does, which every worker notices when it has served its step.
        self._process = SPAWN.Process(target=serve, args=(theirs, self._faults), daemon=True)
        self._process.start()
        theirs.close()  # or its end would be held open here
        self._waiting_s = LOADING * self._patience_s
        self._send(self._recipe)

    def ask(self, command: str, *arguments: Any) -> None:
        """Have the engine do something; `answer` says what came of it."""
        self._send((command, arguments))

    def answer(self) -> Any:
        """What the engine answers. Raises Died, the process ended, or the engine's UserError."""
        assert self._pipe is not None, "start comes first"
        try:
            if not self._pipe.poll(self._waiting_s):
                raise self._hung()
            found = self._pipe.recv()
        except (EOFError, OSError):
            raise self._gone() from None
        if not isinstance(found, Failure):
            self._waiting_s = self._patience_s
            return found
        self.kill()
        if found.for_user:
            raise UserError(found.says)
        raise Died(f"raised {found.says}", found.trace)

    def hang_up(self) -> None:
        """Tell it to end, by itself, once its step is served."""
        if self._pipe is not None:
            self._pipe.close()

    def close(self) -> None:
        """End it: let the engine give back what it holds, but do not wait for long."""
        self.hang_up()
        if self._process is not None:
            self._process.join(CLOSING_S)
        self.kill()
        if not self._dump():
            self._faults.unlink(missing_ok=True)

    def kill(self) -> None:
        """End it now."""
        if self._process is None or self._pipe is None:
            return
        self._process.kill()
        self._process.join()
        self._pipe.close()
        self._process = self._pipe = None

    def _send(self, what: Any) -> None:
        assert self._pipe is not None, "start comes first"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._pipe.send(what)  # where nobody is left to read it, `answer` says so

    def _gone(self) -> Died:
        """It closed the pipe without a word."""
        assert self._process is not None
        self._process.join(CLOSING_S)
        code = self._process.exitcode
        self.kill()
        if code is None:
            return Died("closed its pipe", self._dump())
        if code < 0:
            return Died(f"was ended by {signal.Signals(-code).name}", self._dump())
        return Died(f"ended by itself with exit code {code}", self._dump())

    def _hung(self) -> Died:
        """It did not answer: have it say where it is, then end it."""
        pid = self.pid
        assert pid is not None
        before = len(self._dump())
        with contextlib.suppress(ProcessLookupError):  # it ended at this moment
            os.kill(pid, TELL_STACK)
        until = time.monotonic() + STACK_S
        while len(self._dump()) == before and time.monotonic() < until:
            time.sleep(0.05)
        self.kill()
        return Died(f"did not answer for {self._waiting_s:g} s", self._dump())

    def _dump(self) -> str:
        """What faulthandler wrote."""
        if not self._faults.is_file():
            return ""
        return self._faults.read_text(encoding="utf-8", errors="replace")
