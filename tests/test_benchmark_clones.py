"""The benchmark's fresh clones: timed, unattended, and honest about what went wrong."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import command, fresh_clone, spine
from benchmarks.bench import Bench
from benchmarks.figures import judged
from benchmarks.fresh_clone import Clones, outcomes, skip_reasons
from engine.errors import UserError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def bench() -> Bench:
    """A quick bench without networks or prompts."""

    def nothing(*_: object) -> Any:
        raise UserError("this figure needs no networks")

    return Bench(nothing, nothing, nothing, Clones(ROOT), quick=True)


MAKEFILE = """
train:
	@read line && exit 3 || true
	@test -z "$$MAKELEVEL" || test "$$MAKELEVEL" = 1
	@mkdir -p runs/one/controller "$$DRAFTGYM_CACHE"
	@echo '{}' > runs/one/controller/manifest.json
test:
	@echo 'SKIPPED [2] tests/test_x.py:12: needs a GPU'
	@echo '7 passed, 2 skipped in 1.25s'
"""


@pytest.fixture
def repository(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a repository with one commit of the given Makefile."""
    if not (shutil.which("git") and shutil.which("make")):
        pytest.skip("needs git and make")

    def build(makefile: str) -> Path:
        folder = tmp_path / "repository"
        folder.mkdir()
        (folder / "Makefile").write_text(makefile)
        who = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
        for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "one"]):
            subprocess.run(["git", *words], cwd=folder, check=True)
        return folder

    return build


@pytest.fixture
def cloned(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose clones do not need two cores."""
    monkeypatch.setattr(fresh_clone, "_usable_cores", lambda: [0, 1])
    return bench


def test_make_in_fresh_clones(cloned: Bench, repository: Callable[[str], Path]) -> None:
    cloned.clones = Clones(repository(MAKEFILE), reuse=True)
    train = fresh_clone.make_train(cloned, "")
    assert not train.broken, train.raw
    assert train.raw["exported"] == ["runs/one/controller/manifest.json"]
    tests = fresh_clone.make_test(cloned, "")
    assert not tests.broken, tests.raw
    assert tests.raw["outcomes"] == {"passed": 7, "skipped": 2}
    assert "7 passed, 2 skipped (needs a GPU)" in tests.note
    assert "in the clone of make train" in tests.note
    kept = list(cloned.clones._kept)
    assert len(kept) == 1
    cloned.clones.close()
    assert not kept[0].exists()


@pytest.mark.parametrize(
    ("makefile", "says"),
    [
        ("train:\n\t@echo went wrong; exit 1\n", "make train ended with exit code 2: make: "),
        ("train:\n\t@true\n", "manifest.json is not there"),
    ],
)
def test_make_train_that_fails_holds_no_bar(
    cloned: Bench, repository: Callable[[str], Path], makefile: str, says: str
) -> None:
    cloned.clones = Clones(repository(makefile))
    made = fresh_clone.make_train(cloned, "")
    assert says in made.broken
    assert judged(spine.FIGURES[0], made).status == "missed"
    assert not cloned.clones._kept


def test_make_that_hangs_is_ended(cloned: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    folder.mkdir()
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    made = fresh_clone.make(cloned, folder, words, {}, limit_s=0.01)
    assert made.timed_out
    assert made.code < 0


def test_one_core_is_missing_hardware(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_clone, "_usable_cores", lambda: [0])
    row = command.measure(spine.FIGURES[0], bench)
    assert (row.status, row.passes) == ("excused", True)


def test_pytests_summary_is_read() -> None:
    text = (
        "SKIPPED [1] tests/a.py:3: no data at x: name it\n"
        "SKIPPED [2] tests/b.py:5: unconditional skip\n"
        "1 failed, 9 passed, 3 skipped, 1 error in 61.20s (0:01:01)\n"
        "make: *** [Makefile:1: test] Error 1\n"
    )
    assert outcomes(text) == {"failed": 1, "passed": 9, "skipped": 3, "error": 1}
    assert skip_reasons(text) == [("tests/a.py:3", "no data at x: name it"), ("tests/b.py:5", "")]
    assert outcomes("nothing") == {}
