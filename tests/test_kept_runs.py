"""Runs that are kept: what was cut goes on, and what was made with something else is refused."""

from pathlib import Path

import pytest

from engine.errors import UserError
from eval.kept_runs import Kept, all_made

TASKS = {"one": -1, "two": -2, "three": -3}


def test_what_was_done_is_taken_up_and_the_rest_is_made(tmp_path: Path) -> None:
    folder, said = tmp_path / "it.unfinished", list[str]()
    before = Kept(folder, {"revision": "a"})
    before.save("two", 99)  # abs would say 2, so whoever says 99 has taken it up
    kept = Kept(folder, {"revision": "a"})
    assert all_made(abs, TASKS, kept, said.append, "it", 1) == {"one": 1, "two": 99, "three": 3}
    assert said[0] == "it: 1 of 3 runs were done before and are taken up"
    assert said[-1].startswith("it 100 %  3 of 3") and said[-1].endswith("0:00 left")
    assert all_made(abs, TASKS, Kept(folder, {"revision": "a"}), said.append, "it", 1)["two"] == 99
    kept.forget()
    assert not folder.exists()


def test_a_run_that_failed_is_asked_again(tmp_path: Path) -> None:
    kept, said = Kept(tmp_path / "it.unfinished", {}), list[str]()
    kept.save("one", {"failed": "KeyError: 3"})
    kept.save("two", {"failed": ""})
    made = all_made(abs, {"one": -1, "two": -2}, kept, said.append, "it", 1)
    assert made == {"one": 1, "two": {"failed": ""}}


def test_what_was_made_with_something_else_is_refused_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "it.unfinished"
    Kept(folder, {"revision": "a", "python": "3"}).save("one", 1)
    says = r"--out .* made with other policies, revision; .*another folder"
    with pytest.raises(UserError, match=says):
        Kept(folder, {"revision": "b", "python": "3", "policies": {}})
    assert Kept(folder, {"python": "3", "revision": "a"}).load("one") == 1
    (folder / "made_with.json").write_text("[1")
    with pytest.raises(UserError, match="is damaged"):
        Kept(folder, {"revision": "a", "python": "3"})
    assert Kept(tmp_path / "other.unfinished", {"revision": "b"}).load("one") is None
