"""`python -m engine.workload` as typed: quick help, one line for bad input, tables."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.workload import PRESETS, load_config
from engine.workload.command import main

CLASSES = ("coding", "chat", "summarization")
ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_described(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--capacity-rps", "2"]) == 0
    said = capsys.readouterr().out
    served = [
        row
        for row, share in (PRESETS[name]().mix or dict.fromkeys(CLASSES, 1.0)).items()
        if share > 0
    ]
    for word in (*served, "cv of gaps", "outputs 48 to 96"):
        assert word in said, word
    assert ("all " in said) is (len(served) > 1)
    assert max(map(len, said.splitlines())) <= 100


def test_a_trace_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "arrival_s,prompt_tokens,output_tokens,class\n0,10,1,gold\n1,20,3,gold\n3,30,0,x\n4,30,8,x\n"
    )
    assert main([str(path), "--length-s", "3", "--rate-rps", "10"]) == 0
    said = capsys.readouterr().out
    row = next(line for line in said.splitlines() if line.startswith("gold")).split()
    assert row == ["gold", "2", "100.0%", "10", "–"]
    assert "left out: 1 requests" in said
    lengths = said.splitlines()[4].split()
    assert lengths[:3] == ["gold", "15", "15"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stedy"], "nearest is 'steady'"),
        (["steady", "--length-s", "5"], "--length-s: steady is no trace"),
        (["steady", "--seed", "-1"], "--seed -1"),
        (["steady", "--load", "0"], "load is 0"),
        (["shifting", "--load", "1"], "load and shifts"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and message in said.err


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys, runpy\nsys.argv = ['x', '--help']\n"
        "try:\n    runpy.run_module('engine.workload', run_name='__main__')\n"
        "except SystemExit:\n    pass\n"
        "print(*sorted({'torch', 'scipy', 'numba', 'rich', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "azure-code" in done.stdout and done.stdout.splitlines()[-1] == ""


def test_the_documentation_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"\$ python -m engine.workload three-peaks\n(.*?)```", page, re.DOTALL)
    assert main(["three-peaks"]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == shown.splitlines()


def test_the_documentation_shows_workloads_that_load(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for i, block in enumerate(blocks):
        path = tmp_path / f"{i}.toml"
        path.write_text(block, encoding="utf-8")
        config = load_config(path)
        assert config.disturbances or config.trace is not None
