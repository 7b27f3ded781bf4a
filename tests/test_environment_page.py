"""docs/environment.md tells what the environment shows, takes, pays and tells."""

import re
from pathlib import Path

import gymnasium
import pytest

import envs
from envs import tables
from policies.features import feature_table
from tests.tiny_recording import replay_server

PAGE = (Path(__file__).parent.parent / "docs" / "environment.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("heading", tables.tables())
def test_the_page_holds_the_table(heading: str) -> None:
    table = "\n".join(tables.tables()[heading])
    assert table in PAGE
    assert table.replace("|", "||", 1) not in PAGE  # the comparison can fail


def test_every_feature_has_its_row() -> None:
    text = "\n".join(tables.tables()["features"])
    for feature in feature_table((tables.CLASS,)):
        stem = re.sub(r"_[2-9]$", "_1", feature.name)
        assert f"| {stem} " in text, feature.name


def test_info_holds_what_the_page_tells_and_no_more() -> None:
    env = gymnasium.make(envs.SERVE_ID, server=replay_server, max_decisions=1)
    env.reset(seed=0)
    *_, info = env.step(env.action_space.sample())
    told = {re.sub(r"^(time|reward)/.*", r"\1", key) for key in info}
    assert told == {re.sub(r"/[A-Z]+$", "", key) for key in tables.TOLD}
    parts = {key.removeprefix("reward/") for key in info if key.startswith("reward/")}
    assert parts == set(tables.EARNED)


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None
    # Of a long trace, which a test need not serve to its end.
    short = code[1].replace("decide_every=4", "decide_every=4, max_decisions=3")
    assert short != code[1]
    exec(compile(short, "docs/environment.md", "exec"), {})
    assert "goodput_tps" in capsys.readouterr().out
