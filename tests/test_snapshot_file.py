"""Snapshots as files: read back as they were, and anything else refused in a sentence."""

from __future__ import annotations

import io
import json
import zipfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import snapshot_file
from engine.errors import UserError
from engine.request import Status
from engine.snapshot_file import load, save
from engine.snapshot_origin import Snapshot, check_origin, digest
from engine.snapshot_values import Carrier, LeftOut
from tests.snapshot_walk import assert_same_data

ALIGNED = np.dtype([("is_on", "?"), ("time_s", "f8"), ("count", "u1")], align=True)


class Line(NamedTuple):
    """A record of all sorts."""

    number: int
    time_s: float
    status: Status
    words: list[int]
    spare: float | None = None


@dataclass(frozen=True)
class Rule:
    """A record that is a dataclass."""

    name: str
    limits: tuple[int, ...]


class Thing:
    """An object with a life of its own."""

    size = 3

    def __init__(self, value: Any = None) -> None:
        self.size, self.value, self.derived = 4, value, "made"


CARRIER = Carrier({Thing: LeftOut(("size",), ("derived",))}, (Line, Rule, Status), {})

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
lines = st.builds(
    Line,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.sampled_from(list(Status)),
    st.lists(st.integers(0, 99), max_size=3),
    st.none() | st.floats(allow_nan=False),
)
values = st.recursive(
    plain | st.lists(lines, max_size=5) | st.builds(Rule, st.text(), st.just((1, 2))),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def through_a_file(snapshot: Snapshot, folder: Path) -> Snapshot:
    """Written and read again."""
    save(snapshot, folder / "some.npz")
    return load(folder / "some.npz")


def told(value: Any) -> str:
    """The value and all kinds in it; NaN is equal to NaN."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.tolist()}"
    return repr(value)


@given(value=values)
def test_values_come_back_as_they_were(value: Any, tmp_path_factory: Any) -> None:
    snapshot = Snapshot("Thing", {"size": "3"}, CARRIER.pack(Thing(value)))
    again = through_a_file(snapshot, tmp_path_factory.getbasetemp())
    assert_same_data(again.state, snapshot.state)
    thing = Thing()
    CARRIER.unpack(again.state, thing)
    assert told(thing.value) == told(value)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6.0).reshape(2, 3),
        np.array(7),
        np.float64("nan"),
        np.uint64(2**64 - 1),
        deque([1.5, 2.5]),
        {3, 1, 2},
        frozenset({5}),
        {1: np.zeros(2), 2: np.ones(3)},
        float("-inf"),
        -0.0,
        2**70,
        [True, False],
        [1, 2.0, None],
        np.zeros((0, 3), np.int32),
    ],
    ids=repr,
)
def test_kinds_that_are_carried(value: Any, tmp_path: Path) -> None:
    data = through_a_file(Snapshot("", {}, CARRIER.pack(value)), tmp_path).state
    again = CARRIER.unpack(data)
    assert type(again) is type(value)
    assert told(again) == told(value)


def test_generators_go_on_where_they_were(tmp_path: Path) -> None:
    for bits in (np.random.PCG64, np.random.MT19937, np.random.Philox):
        generator = np.random.Generator(bits(3))
        generator.normal(size=5)
        data = through_a_file(Snapshot("", {}, CARRIER.pack([None, generator])), tmp_path).state
        nobody, again = CARRIER.unpack(data)
        assert nobody is None
        assert again.integers(0, 2**60, 9).tolist() == generator.integers(0, 2**60, 9).tolist()


def test_records_keep_the_padding_of_the_place_that_they_return_to(tmp_path: Path) -> None:
    array = np.zeros(3, ALIGNED)
    array["time_s"], array["count"] = 2.5, 7
    data = through_a_file(Snapshot("", {}, CARRIER.pack(array)), tmp_path).state
    again = CARRIER.unpack(data, np.zeros(1, ALIGNED))
    assert again.dtype.isalignedstruct and again.dtype == ALIGNED
    assert again.tolist() == array.tolist()


def test_lists_in_records_are_nobody_elses() -> None:
    line = Line(1, 0.5, Status.FINISHED, [1, 2])
    first, second = CARRIER.unpack(CARRIER.pack([line, line]))
    first.words.append(3)
    assert second.words == line.words == [1, 2]


def test_data_cannot_be_written_to() -> None:
    value = np.zeros(3)
    data = CARRIER.pack(value)
    value[0] = 1.0
    assert data.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 2.0


def test_what_has_no_form_is_named() -> None:
    for value in (object(), print, np.array([object()]), np.random):
        with pytest.raises(TypeError, match=r"top\.value is a \w+, which no snapshot carries"):
            CARRIER.pack(Thing(value), "top")


def test_an_object_stays_and_gets_its_values() -> None:
    inner = Thing([1, 2])
    outer = Thing(inner)
    data = CARRIER.pack(outer)
    inner.value, inner.size, inner.derived = [9], 8, "other"
    assert CARRIER.unpack(data, outer) is outer and outer.value is inner
    assert (inner.value, inner.size, inner.derived) == ([1, 2], 8, "other")
    with pytest.raises(UserError, match="holds a 'Thing' where none stands now"):
        CARRIER.unpack(data, Thing(None))


# -- files that are refused --------------------------------------------------------------------


def written(folder: Path, **changes: Any) -> Path:
    """A good file whose JSON was changed."""
    path = folder / "changed.npz"
    save(Snapshot("Thing", {}, CARRIER.pack(Thing(np.arange(3)))), path)
    with np.load(path) as members:
        arrays = dict(members)
    tree = json.loads(arrays.pop(snapshot_file.TREE).tobytes()) | changes
    arrays[snapshot_file.TREE] = np.frombuffer(json.dumps(tree).encode(), np.uint8)
    np.savez(path, **arrays)
    return path


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    assert load(written(tmp_path)).kind == "Thing"
    with pytest.raises(UserError, match="snapshot of version 2, expected 1"):
        load(written(tmp_path, version=2))
    with pytest.raises(UserError, match=r"no snapshot of DraftGym.*its format is 'other'"):
        load(written(tmp_path, format="other"))
    with pytest.raises(UserError, match="damaged"):
        load(written(tmp_path, state={"array": 7}))


def test_what_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "it.npz"
    with pytest.raises(UserError, match="no snapshot can be read"):
        load(path)
    good = written(tmp_path).read_bytes()
    for content in (b"", b"some text", good[: len(good) // 2], good[:-30]):
        path.write_bytes(content)
        with pytest.raises(UserError, match="no snapshot"):
            load(path)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("tree.npy", b"\x80\x04N.")  # a pickle
    path.write_bytes(buffer.getvalue())
    with pytest.raises(UserError, match="no snapshot"):
        load(path)
    np.savez(path, tree=np.array([{}], object))
    with pytest.raises(UserError, match="no snapshot"):
        load(path)


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match="cannot be written"):
        save(Snapshot("Thing", {}, None), path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_snapshot_belongs_to_what_it_was_taken_of() -> None:
    snapshot = Snapshot("Thing", {"size": "3"}, None)
    check_origin(snapshot, "Thing", {"size": "3"})
    for made_on in ({"size": "4"}, {}, {"size": "3", "colour": "red"}):
        with pytest.raises(UserError, match=r"taken with another (size|colour)"):
            check_origin(snapshot, "Thing", made_on)
    arrays = [np.arange(3), np.arange(3.0)]
    assert digest(arrays) != digest(arrays[:1]) != digest([np.arange(3, dtype=np.int32)])
    assert digest([np.zeros((2, 3))]) != digest([np.zeros((3, 2))])
