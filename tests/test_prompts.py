"""The shipped prompt sets: enough, unique, well formed, and none taken from a benchmark.

How the workload reads the files is tested with the workload.
"""

import gzip
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = ROOT / "engine" / "workload" / "prompts"
CLASSES = ("coding", "chat", "maths", "summarization")
MINIMUM_PER_CLASS = 60


def read_records(name: str) -> list[dict[str, str]]:
    lines = (PROMPTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def normalised(text: str) -> str:
    """Case and white space do not make a prompt a different one."""
    return " ".join(text.lower().split())


@pytest.mark.parametrize("name", CLASSES)
def test_class_has_enough_well_formed_prompts(name: str) -> None:
    records = read_records(name)
    assert len(records) >= MINIMUM_PER_CLASS
    for record in records:
        assert set(record) == {"id", "class", "prompt"}
        assert record["class"] == name
        assert record["id"].startswith(f"{name}/")
        assert record["prompt"].strip()


def test_ids_and_prompts_are_unique_over_all_classes() -> None:
    records = [record for name in CLASSES for record in read_records(name)]
    assert len({record["id"] for record in records}) == len(records)
    assert len({normalised(record["prompt"]) for record in records}) == len(records)


def test_no_prompt_equals_a_benchmark_prompt(shared_data: Path) -> None:
    files = sorted((shared_data / "prompts").glob("*.jsonl.gz"))
    assert files, f"{shared_data}/prompts holds no *.jsonl.gz"
    known: set[str] = set()
    for path in files:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                known.update(normalised(turn) for turn in json.loads(line)["turns"])
    shipped = {normalised(r["prompt"]) for name in CLASSES for r in read_records(name)}
    assert not shipped & known
