"""What the documentation tells a reader to type exists, and its example controller runs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from engine.protocol import Controller
from engine.request import Request
from engine.tiny import tiny_server

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def example_controller() -> type[Controller]:
    """The class that docs/controllers.md shows, run as it stands there."""
    text = (ROOT / "docs" / "controllers.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    names: dict[str, object] = {"__name__": "my_controller"}
    exec(compile(code[1], "docs/controllers.md", "exec"), names)
    found = names["LoadAware"]
    assert isinstance(found, type) and issubclass(found, Controller)
    return found


def test_the_example_controller_serves() -> None:
    server = tiny_server(vocab=16)
    requests = [Request(i, i % 3, [1, 2, 3 + i], 12, 0.0) for i in range(6)]
    engine = server.engine(requests)
    records = engine.serve(example_controller()())
    assert [len(r.output) for r in requests] == [12] * 6
    assert len(records) == 6 and engine.counters["drafted"] > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_links_and_targets_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for script in re.findall(r"python (\w+\.py)", text):
        assert (ROOT / script).is_file(), script
    for module in re.findall(r"python -m ((?:models|engine|benchmarks|eval)[\w.]*)", text):
        assert importlib.util.find_spec(module) is not None, module
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`?make ([a-z]+)`?\n", text):
        assert f"\n{target}:" in makefile, target
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (page.parent / link).exists(), link
