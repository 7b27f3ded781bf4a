"""A results folder: what is written is read again, and nothing unfinished, cut or mixed is."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from engine.errors import UserError
from eval.parts import differing, figure, read_part, typed, write_part
from eval.report.folder import read_folder
from eval.statistics import Interval

ROWS = [{"cell": "a", "goodput": 1.5}, {"cell": "b", "goodput": math.inf, "fault": "it raised"}]
COMMAND = "python evaluate.py --matrix small"


def written(folder: Path, name: str = "matrix", complete: bool = True) -> Path:
    write_part(folder, name, ROWS, {"verdict": "none"}, [1000, 1001], COMMAND, complete)
    return folder / f"{name}.json"


def changed(path: Path, **values: object) -> None:
    data = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps(data))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written(tmp_path)
    part = read_part(tmp_path, "matrix")
    assert part.rows == [{**ROWS[0], "fault": None}, ROWS[1]]
    assert part.summary["verdict"] == "none" and part.summary["seeds"] == [1000, 1001]
    assert part.summary["command"] == COMMAND and part.summary["hardware"]["cores"] >= 1
    assert list(read_folder(tmp_path).by_name) == ["matrix"]


def test_an_unknown_part_is_a_bug() -> None:
    with pytest.raises(ValueError, match="matrix, adaptation"):
        write_part(Path(), "matrixx", [], {}, [], COMMAND)


def test_an_unfinished_part_names_its_command(tmp_path: Path) -> None:
    written(tmp_path, complete=False)
    with pytest.raises(UserError, match=r"unfinished.*--matrix small"):
        read_folder(tmp_path)


def test_rows_of_another_run_are_refused(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "matrix.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match="two runs or was cut"):
        read_part(tmp_path, "matrix")


def test_parts_of_two_versions_are_not_set_side_by_side(tmp_path: Path) -> None:
    written(tmp_path)
    path = written(tmp_path, "adaptation")
    assert list(read_folder(tmp_path).by_name) == ["matrix", "adaptation"]
    of = json.loads(path.read_text())["versions"]
    changed(path, versions={**of, "packages": {**of["packages"], "numpy": "1.0"}})
    with pytest.raises(UserError, match=r"mixed versions.*numpy \(.* and 1\.0\)"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("values", "says"), [({"schema": 0}, "schema 0"), ({"part": "other"}, "no results of a part")]
)
def test_other_files_are_refused(tmp_path: Path, values: dict[str, object], says: str) -> None:
    changed(written(tmp_path), **values)
    with pytest.raises(UserError, match=says):
        read_part(tmp_path, "matrix")


def test_nothing_and_no_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no results"):
        read_folder(tmp_path)
    (tmp_path / "matrix.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read as results"):
        read_folder(tmp_path)


def test_the_small_pieces() -> None:
    assert figure(Interval(1.0, 0.5, 2.0, 3)) == {"value": 1.0, "low": 0.5, "high": 2.0}
    assert figure(Interval(0.9, 0.5, 1.3, 3), 0, 1) == {"value": 0.9, "low": 0.5, "high": 1}
    assert (
        typed("evaluate.py", ["--policy", "chain(2)"]) == "python evaluate.py --policy 'chain(2)'"
    )
    same = {"revision": "a", "packages": {"numpy": "2"}, "platform": "here"}
    assert differing(same, {**same, "platform": "there"}) == ""
    assert differing(same, {**same, "revision": "b"}) == "revision (a and b)"
