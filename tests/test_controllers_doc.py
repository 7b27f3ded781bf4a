"""docs/controllers.md: its example is short and runs on replay, its table is the registry's."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from engine.errors import UserError
from engine.protocol import Controller
from policies import registry
from policies.listing import BEGIN, END, PAGE, with_table
from tests.controller_trials import faults, serve


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page's first block of code, saved as it says and importable."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    (tmp_path / "my_controller.py").write_text(code[1], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_controller", raising=False)
    return code[1]


def example() -> Controller:
    return registry.make("my_controller:LoadAware")


def test_the_example_takes_thirty_lines(module: str) -> None:
    assert len([line for line in module.splitlines() if line.strip()]) <= 30


def test_the_example_runs_on_replay(module: str) -> None:
    assert not faults(example, 5)
    drafted = {sum(drafted) > 0 for _, drafted, _ in serve(example(), 0).course}
    assert drafted == {True, False}  # deep for a small batch, not at all for a full one


def test_the_table_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page, "run `python -m policies.listing`"


def test_a_table_that_is_not_current_is_told() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    stale = before + BEGIN + "| `gone` | nothing |\n" + END + after
    assert stale != page and with_table(stale) == with_table(page)
    with pytest.raises(UserError, match="no lines"):
        with_table(before)


def test_every_spec_on_the_page_can_be_made() -> None:
    page = PAGE.read_text(encoding="utf-8")
    call = r"[a-z0-9-]+\((?:[^()]|\([^()]*\))*\)(?::[a-z0-9-]+)?"
    table = re.findall(rf": ({call})", page.partition(BEGIN)[2].partition(END)[0])
    typed = re.findall(r"`((?:[a-z]+(?:\(\d\))?:)*(?:slack-priced|adaserve)(?:\([^`]*\))?)`", page)
    assert len(table) > 10 and "shielded:held(4):slack-priced" in typed
    for spec in table + typed:
        assert isinstance(registry.make(spec), Controller), spec
