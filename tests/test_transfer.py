"""What was lost from replay to live: said only where intervals clear zero, in three forms alike."""

from __future__ import annotations

import dataclasses
import io
import json

import numpy as np
import pytest
from rich.console import Console

from eval import transfer
from eval.runner import Comparison
from eval.transfer import Transfer
from tests.test_comparison import made_run

HARDNESS = np.array([0.0, 0.1, 0.2, 0.05, 0.15, 0.12])


def comparison(before: float, after: float, goodput: float, swing: float = 0.0) -> Comparison:
    """Seeds of different hardness; goodput of every other seed swings."""
    swings = swing * (-1.0) ** np.arange(len(HARDNESS))
    runs = {
        name: tuple(
            made_run(name, seed, attained - hard, goodput - 100 * hard + up)
            for seed, (hard, up) in enumerate(zip(HARDNESS.tolist(), swings.tolist(), strict=True))
        )
        for name, attained in (("before", before), ("after", after))
    }
    return Comparison(tuple(range(len(HARDNESS))), runs)


@pytest.fixture(scope="module")
def lost() -> Transfer:
    """Attainment fell by 20 points, by 5 after fine-tuning; goodput swings around the same."""
    replay, live = comparison(0.9, 0.9, 100.0), comparison(0.7, 0.85, 100.0, swing=30.0)
    return transfer.transfer_of(replay, live, "before", "after", np.random.default_rng(0))


def test_what_was_lost_is_told_and_what_is_not_shown_is_not(lost: Transfer) -> None:
    before, after, gained = lost.verdict.split(". ")
    assert before.startswith("From replay to live, before: attainment fell by 20.0 points [20.0, ")
    assert "goodput: no difference shown (" in before and " tok/s [" in before
    assert "after: attainment fell by 5.0 points" in after
    assert gained.startswith("By fine-tuning, on live: attainment rose by 15.0 points")
    assert gained.endswith("goodput: no difference shown (0.0 tok/s [0.0, 0.0]).")


def test_one_seed_shows_nothing() -> None:
    one = comparison(0.9, 0.9, 100.0)
    other = comparison(0.5, 0.5, 50.0)
    replay, live = (
        Comparison(of.seeds[:1], {name: runs[:1] for name, runs in of.runs.items()})
        for of in (one, other)
    )
    found = transfer.transfer_of(replay, live, "before", "after", np.random.default_rng(0))
    assert found.verdict.count("no difference shown") == 6 and "fell" not in found.verdict


def test_other_seeds_are_no_pairs() -> None:
    one = comparison(0.9, 0.9, 100.0)
    other = dataclasses.replace(one, seeds=tuple(range(1, 7)))
    with pytest.raises(ValueError, match="expected one"):
        transfer.transfer_of(one, other, "before", "after", np.random.default_rng(0))


def test_table_markdown_and_json_say_the_same(lost: Transfer) -> None:
    console = Console(file=io.StringIO(), width=160)
    console.print(transfer.as_rich(lost))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    written, data = transfer.as_markdown(lost), transfer.as_json(lost)
    for text in (shown, written):
        assert "before, attainment %" in text and "-20.0 [-20.0, -20.0]" in text
        assert "6 paired seeds" in text
    assert lost.verdict in written and data["verdict"] == lost.verdict
    first = json.loads(json.dumps(data, allow_nan=False))["gaps"][0]
    assert (first["controller"], first["figure"]) == ("before", "attainment")
    assert first["gap"]["mean"] == pytest.approx(-0.2)
