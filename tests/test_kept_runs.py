"""Runs that are kept: what was cut goes on, and what was made with something else does not."""

from pathlib import Path

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


def test_what_was_made_with_something_else_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "it.unfinished"
    Kept(folder, {"revision": "a"}).save("one", 1)
    assert Kept(folder, {"revision": "a"}).load("one") == 1
    assert Kept(folder, {"revision": "b"}).load("one") is None
    assert Kept(folder, {"revision": "a"}).load("one") is None
