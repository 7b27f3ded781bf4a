"""What runs in a worker process: an engine that is stepped as a pipe says, until the pipe closes.

Light at import: the process must ignore the terminal's Ctrl-C, which is the trainer's to handle,
before it begins with what takes seconds. Both ends of the pipe are our own processes, so the
pickles that go through it cross no trust line.
"""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from engine.errors import UserError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from engine.protocol import Floats, Ints
    from policies.features import Observation

TELL_STACK = signal.SIGUSR1
"""Has a worker write where it is to its file of faults."""


class Stepped(NamedTuple):
    """What a step brought."""

    observation: Observation
    """Behind the step: where the episode is over, its last one."""
    reward: float
    info: dict[str, Any]
    ended: Floats
    """Of the requests that ended, as `train.ended_requests` has them."""
    power_is_measured: bool
    begun: tuple[Observation, dict[str, Any]] | None
    """What the next episode begins with, and its info; None while this one goes on."""


class Engine(Protocol):
    """What a worker steps."""

    def reset(self, seed: int | None) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode."""
        ...

    def step(self, action: Ints, share: float) -> Stepped:
        """Serve under the tiers `action` [D]; `share` of training is behind."""
        ...

    def close(self) -> None:
        """Give back what it holds of the machine."""
        ...


Recipe = Callable[[], Engine]
"""Makes an engine in the worker; goes there through the pipe."""


@dataclass(frozen=True)
class Failure:
    """An exception that ended a worker."""

    says: str
    trace: str
    """The traceback in full."""
    for_user: bool
    """It is a UserError: whoever is started in its place would say the same."""


def serve(pipe: Connection, faults: Path) -> None:
    """Make the engine, then answer commands. What kills the interpreter itself is told `faults`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with faults.open("w", encoding="utf-8") as file:
        faulthandler.enable(file, all_threads=False)
        faulthandler.register(TELL_STACK, file, all_threads=False)
        try:
            recipe = _next(pipe)
            if recipe is not None:
                with contextlib.closing(recipe()) as engine:
                    while (asked := _next(pipe)) is not None:
                        command, arguments = asked
                        pipe.send(getattr(engine, command)(*arguments))
        except Exception as error:
            says = str(error) if isinstance(error, UserError) else _in_words(error)
            failure = Failure(says, traceback.format_exc(), isinstance(error, UserError))
            with contextlib.suppress(OSError):  # the trainer may be gone: then nobody asks
                pipe.send(failure)
        finally:
            faulthandler.unregister(TELL_STACK)
            faulthandler.disable()


def _next(pipe: Connection) -> Any:
    """What the trainer asks next; None where it has closed the pipe, or is gone."""
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return None


def _in_words(error: Exception) -> str:
    return ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
