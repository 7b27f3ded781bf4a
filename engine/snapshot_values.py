"""From Python values to plain data and back: what a snapshot is made of.

Data is None, a number, a string, a NumPy array, a list of data, or a dictionary whose entry "is"
says what it stands for. Everything in an object is carried unless it is named as left out, so a
field that somebody adds later comes along by itself, and one that no data can hold is an error
here rather than a gap there. Which objects these are is `engine.snapshot`'s to say and that of the
floors above; how data lies in a file `engine.snapshot_file`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from engine.errors import UserError
from engine.request import Request
from engine.snapshot_origin import Data

SEQUENCES = {kind.__name__: kind for kind in (tuple, deque, set, frozenset)}
GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


class LeftOut(NamedTuple):
    """Attributes of a class that no snapshot carries, by name."""

    constant: tuple[str, ...] = ()
    """They never change, or are objects that are carried where they belong."""
    rebuilt: tuple[str, ...] = ()
    """They follow from what is carried."""


@dataclass(frozen=True)
class Carrier:
    """Takes objects of the classes in `left_out` to data, and data back into such objects."""

    left_out: Mapping[type, LeftOut]
    """By class, or by NamedTuple; a subclass leaves out what its bases do."""
    records: tuple[type, ...]
    """NamedTuples, dataclasses and enumerations that may stand where nobody stood before."""
    rebuild: Mapping[type, Callable[[Any], None]]
    """What is called with an object that was put back, and makes what is rebuilt."""
    requests: Mapping[int, Request] | None = None
    """By id, requests that are named instead of carried."""

    # -- to data -------------------------------------------------------------------------------

    def pack(self, value: Any, where: str = "") -> Data:
        """The value as data that shares nothing with it. Raises TypeError for what has no form."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return _frozen_copy(value)
        if isinstance(value, np.generic):
            return {"is": "number", "of": _frozen_copy(np.array(value))}
        if kind is list:
            return self._pack_list(value, where)
        if kind in SEQUENCES.values():
            items = sorted(value) if kind in (set, frozenset) else list(value)
            return {"is": kind.__name__, "of": self._pack_list(items, where)}
        if isinstance(value, dict):
            keys = self._pack_list(list(value), where)
            return {"is": "dict", "keys": keys, "of": self._pack_list(list(value.values()), where)}
        if isinstance(value, Enum):
            return {"is": "choice", "kind": kind.__name__, "of": value.value}
        if isinstance(value, np.random.Generator):
            return {"is": "generator", "of": self.pack(value.bit_generator.state, where)}
        if (names := self.carried(value)) is None:
            raise TypeError(
                f"{where} is a {kind.__name__}, which no snapshot carries; name it as left out, or "
                "add its class to the carrier"
            )
        of = {name: self.pack(getattr(value, name), f"{where}.{name}") for name in names}
        return {"is": "object", "kind": kind.__name__, "of": of}

    def carried(self, value: Any) -> list[str] | None:
        """Names of the fields that are carried; None for an object that the carrier knows not."""
        kind = type(value)
        if _is_record(kind) and (kind in self.records or issubclass(kind, tuple)):
            names = _field_names(kind)
        elif any(base in self.left_out for base in kind.__mro__):
            names = list(vars(value))
        else:
            return None
        left = self._left_out(kind)
        return [name for name in names if name not in left]

    def _left_out(self, kind: type) -> set[str]:
        found = (self.left_out[base] for base in kind.__mro__ if base in self.left_out)
        return {name for of in found for name in (*of.constant, *of.rebuilt)}

    def _pack_list(self, items: list[Any], where: str) -> Data:
        """Numbers of one kind as an array; records of one kind as a table; else one by one."""
        kinds = {type(item) for item in items}
        if len(kinds) == 1:
            kind = kinds.pop()
            if kind in (int, float, bool):
                array = np.array(items)
                if array.dtype == np.dtype(kind):  # not for whole numbers beyond 64 bits
                    return {"is": "numbers", "of": _frozen_copy(array)}
            if issubclass(kind, Request) and self.requests is not None:
                return {"is": "requests", "of": _frozen_copy(np.array([r.id for r in items]))}
            if kind in self.records and _is_record(kind):
                columns = {
                    name: self._pack_column([getattr(item, name) for item in items], where)
                    for name in _field_names(kind)
                }
                return {"is": "table", "kind": kind.__name__, "of": columns}
        return [self.pack(item, f"{where}[{i}]") for i, item in enumerate(items)]

    def _pack_column(self, items: list[Any], where: str) -> Data:
        """As a list; but what comes again and again, as prompts do, is held once."""
        kinds = {type(item) for item in items}
        if kinds <= {int, float} or any(k.__hash__ is None and k is not list for k in kinds):
            return self._pack_list(items, where)
        places: dict[Any, int] = {}
        different: list[Any] = []
        chosen = np.empty(len(items), np.int32)
        for i, item in enumerate(items):
            key = type(item), tuple(item) if type(item) is list else item
            chosen[i] = place = places.setdefault(key, len(different))
            if place == len(different):
                different.append(item)
        return {
            "is": "column",
            "of": self._pack_list(different, where),
            "chosen": _frozen_copy(chosen),
        }

    # -- and back ------------------------------------------------------------------------------

    def unpack(self, data: Data, like: Any = None) -> Any:
        """The value again; nothing in it is shared with the data or with what stood there before.

        `like` stands in the value's place now. Objects with a life of their own are kept and given
        the values that were carried; arrays are replaced, since somebody may hold the old ones.
        Raises UserError for data whose fields are not those of the class.
        """
        if isinstance(data, np.ndarray):
            return _array(data, like)
        if isinstance(data, list):
            return [self.unpack(item) for item in data]
        if not isinstance(data, dict):
            return data
        form, of = data["is"], data["of"]
        if form == "number":
            return of[()]
        if form == "numbers":
            return of.tolist()
        if form == "column":
            different = self.unpack(of)
            chosen = [different[place] for place in data["chosen"].tolist()]
            return [list(item) if type(item) is list else item for item in chosen]
        if form == "table":
            kind, columns = self._kind(data["kind"]), {n: self.unpack(c) for n, c in of.items()}
            _check_fields(kind.__name__, set(columns), set(_field_names(kind)))
            rows = zip(*columns.values(), strict=True)
            return [kind(**dict(zip(columns, row, strict=True))) for row in rows]
        if form in SEQUENCES:
            return SEQUENCES[form](self.unpack(of))
        if form == "dict":
            return dict(zip(self.unpack(data["keys"]), self.unpack(of), strict=True))
        if form == "choice":
            return self._kind(data["kind"])(of)
        if form == "requests" and self.requests is not None:
            return [self.requests[number] for number in of.tolist()]
        if form == "generator":
            return _generator(self.unpack(of))
        if _is_record(type(like)) or like is None:
            return self._record(data["kind"], of, like)
        return self._put_back(data["kind"], of, like)

    def _record(self, name: str, of: dict[str, Data], like: Any) -> Any:
        """A NamedTuple or dataclass, made whole; what is left out is taken from `like`."""
        kind = type(like) if type(like).__name__ == name else self._kind(name)
        here = {} if like is None else {n: getattr(like, n, None) for n in _field_names(kind)}
        left = {n: here[n] for n in self._left_out(kind)}
        _check_fields(name, set(of) | set(left), set(_field_names(kind)))
        return kind(**left, **{n: self.unpack(data, here.get(n)) for n, data in of.items()})

    def _put_back(self, name: str, of: dict[str, Data], like: Any) -> Any:
        """An object that stands there already, with the values that were carried."""
        kind = type(like)
        if kind.__name__ != name:
            self._kind(name)  # which says what is wrong
        here = set(self.carried(like) or ())
        # What the class itself has, an object need not have until it is first set.
        unset = {n for n in here ^ set(of) if hasattr(kind, n)}
        _check_fields(name, set(of) - unset, here - unset)
        for field in here - set(of):
            delattr(like, field)
        for field, data in of.items():
            setattr(like, field, self.unpack(data, getattr(like, field, None)))
        for base in reversed(kind.__mro__):
            if base in self.rebuild:
                self.rebuild[base](like)
        return like

    def _kind(self, name: str) -> Any:
        for kind in self.records:
            if kind.__name__ == name:
                return kind
        raise UserError(
            f"the snapshot holds a {name!r} where none stands now; restore it with the version of "
            "DraftGym that took it, into an object made as that one was"
        )


def _is_record(kind: type) -> bool:
    """Whether it is a NamedTuple or a dataclass: made whole out of its fields."""
    return hasattr(kind, "_fields") or is_dataclass(kind)


def _field_names(kind: Any) -> list[str]:
    return list(kind._fields) if hasattr(kind, "_fields") else [f.name for f in fields(kind)]


def _check_fields(name: str, saved: Iterable[str], expected: Iterable[str]) -> None:
    different = sorted(set(saved) ^ set(expected))
    if different:
        raise UserError(
            f"the snapshot's {name} differs from this version's in {', '.join(different)}; restore "
            "it with the version of DraftGym that took it"
        )


def _array(data: np.ndarray, like: Any) -> np.ndarray:
    """A copy that may be written; of records, with the padding that kernels were compiled for."""
    if data.dtype.names is None or not isinstance(like, np.ndarray):
        return data.copy()
    _check_fields("array of records", data.dtype.names, like.dtype.names or ())
    return data.astype(like.dtype)


def _frozen_copy(array: np.ndarray) -> np.ndarray:
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def _generator(state: dict[str, Any]) -> np.random.Generator:
    name = state["bit_generator"]
    if name not in GENERATORS:
        raise UserError(
            f"the snapshot has a generator of the kind {name!r}; expected one of NumPy's: "
            f"{', '.join(GENERATORS)}"
        )
    bits = getattr(np.random, name)()
    bits.state = state
    return np.random.Generator(bits)
