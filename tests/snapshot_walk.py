"""What a snapshot leaves out as constant, seen through: all that it holds, as text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import fields
from hashlib import sha256
from typing import Any

import numpy as np

from engine.replay.power_levels import PowerLevels
from engine.replay.server import ReplayServer
from engine.request import Request
from engine.snapshot_values import Carrier

WRITTEN = {"output", "logprobs"}
"""Of a request; what the engine writes there is made again from what a snapshot carries."""
SERVER = {"book", "recording", "profile", "settings", "decision_s", "unloaded_tpot_s", "_pages"}
"""Of a server; the rest is worked out when it is first asked for."""


def carried_objects(carrier: Carrier, top: Any) -> Iterator[Any]:
    """The object and those below it that a snapshot carries."""
    if not any(base in carrier.left_out for base in type(top).__mro__):
        return
    yield top
    for name in carrier.carried(top) or ():
        yield from carried_objects(carrier, getattr(top, name))


def constants(carrier: Carrier, top: Any) -> dict[str, str]:
    """By class and name, a digest of everything that is reached from a constant."""
    found = {}
    for of in carried_objects(carrier, top):
        for base in type(of).__mro__:
            names = carrier.left_out[base].constant if base in carrier.left_out else ()
            for name in names:
                text = content(getattr(of, name, None), carrier)
                found[f"{base.__name__}.{name}"] = sha256(text.encode()).hexdigest()
    return found


def content(value: Any, carrier: Carrier, above: tuple[int, ...] = ()) -> str:
    """All that can be reached from a value; carried objects are named only."""
    kind = type(value)
    if id(value) in above or any(base in carrier.left_out for base in kind.__mro__):
        return f"<{kind.__name__}>"
    above = (*above, id(value))

    def inside(part: Any) -> str:
        return content(part, carrier, above)

    if isinstance(value, np.ndarray):
        return f"{value.shape} {value.dtype} {sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, Request):
        names = [f.name for f in fields(value) if f.name not in WRITTEN]
        return repr([getattr(value, name) for name in names])
    if isinstance(value, list | tuple | set | frozenset | deque):
        return f"[{', '.join(inside(part) for part in value)}]"
    if isinstance(value, dict):
        return f"[{', '.join(f'{inside(k)}: {inside(part)}' for k, part in value.items())}]"
    if isinstance(value, PowerLevels):  # worked out when they are first needed
        return inside(value.free)
    if isinstance(value, ReplayServer):
        return inside({name: getattr(value, name) for name in sorted(SERVER)})
    if callable(value) or not hasattr(value, "__dict__"):
        return f"<{kind.__name__}>" if callable(value) else repr(value)
    return f"{kind.__name__} {inside(vars(value))}"


def assert_same_data(ours: Any, theirs: Any, where: str = "") -> None:
    """Equal to the last bit, and of the same kind."""
    assert type(ours) is type(theirs), where
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for name in theirs:
            assert_same_data(ours[name], theirs[name], f"{where}/{name}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for i, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            assert_same_data(our, their, f"{where}[{i}]")
    else:
        np.testing.assert_array_equal(ours, theirs, err_msg=where)
