"""The learning benchmark's other figures: live order, changes, killed runs and tuning, judged."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import (
    learning_adaptation,
    learning_change,
    learning_live,
    learning_proofs,
    learning_tuned,
)
from benchmarks.bench import Bench
from benchmarks.figures import UnmeasuredError
from benchmarks.fresh_clone import Clones
from eval.runner import Comparison


@pytest.fixture
def bench() -> Bench:
    """Without networks or prompts, and not quick."""

    def nothing(*_: object) -> Any:
        raise UnmeasuredError("this figure needs no networks")

    return Bench(nothing, nothing, nothing, Clones(Path()))


def comparison(missed: dict[str, list[float]]) -> Comparison:
    """Blocks in which goodput is 100 less the violations."""
    runs: dict[str, Any] = {
        label: tuple(
            SimpleNamespace(metrics=SimpleNamespace(violations=m, goodput_tps=100.0 - m))
            for m in of
        )
        for label, of in missed.items()
    }
    return Comparison(tuple(range(3)), runs)


def test_the_order_on_live_is_replays_or_not() -> None:
    replayed = comparison({"trained": [1, 2, 1], "adaserve": [8, 9, 9]})
    same = comparison({"trained": [3, 3, 4], "adaserve": [6, 7, 7]})
    result = learning_live.judged(same, replayed, "3 blocks", np.random.default_rng(0))
    assert result.value == 0 and result.text == "0 of 2" and not result.broken
    other = comparison({"trained": [6, 7, 7], "adaserve": [3, 3, 4]})
    result = learning_live.judged(other, replayed, "3 blocks", np.random.default_rng(0))
    assert result.value == 2 and result.broken
    even = comparison({"trained": [1, 2, 1], "adaserve": [2, 1, 1]})
    with pytest.raises(UnmeasuredError, match="no order"):
        learning_live.judged(same, even, "3 blocks", np.random.default_rng(0))


def test_a_change_is_won_against_both() -> None:
    def way(regret: float, excess_s: float) -> dict[str, Any]:
        return {
            "regret_tokens": regret,
            "excess_s": excess_s,
            "judged": True,
            "excess_censored": False,
        }

    def ways(regret: float, excess_s: float) -> list[Any]:
        others = {"adaserve": way(50.0, 10.0), "turbospec": way(60.0, 10.0)}
        return [others | {"trained": way(regret + i, excess_s)} for i in range(3)]

    by_change = {"mix": ways(10, 5), "memory": ways(10, 10), "acceptance": ways(55, 0)}
    by_change["draft speed"] = ways(10, 15)
    trees = {change: ["chain(1)", "chain(2)"] for change in by_change}
    result = learning_adaptation.judged(by_change, trees, np.random.default_rng(0))
    assert result.value == 2 and result.text == "2 of 4"
    assert "acceptance (not below both" in result.note


@pytest.mark.parametrize("change", learning_change.CHANGES)
def test_one_thing_changes_at_one_moment(change: str) -> None:
    search = learning_change.Search(change, 0.9, 1)
    work = learning_change.changing(search)
    before, after = work.regimes
    assert before.duration_s == learning_change.CHANGE_S
    assert before.load == after.load == pytest.approx(0.85 * 0.9)
    differing = [
        name
        for name in ("mix", "acceptance", "draft_time")
        if getattr(before, name) != getattr(after, name)
    ]
    if change == "memory":
        (withdrawn,) = work.disturbances
        assert not differing and withdrawn.start_s == learning_change.CHANGE_S
    else:
        assert len(differing) == 1 and not work.disturbances
    calm, changed = (learning_change.side(search, side) for side in (False, True))
    assert not calm.disturbances and calm.regimes[0].mix == before.mix
    assert changed.regimes[0].acceptance == after.acceptance
    assert len(changed.disturbances) == len(work.disturbances)


def test_killed_runs_are_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str]] = []

    def identical(seed: int, policy: str) -> bool:
        asked.append((seed, policy))
        return seed != 2

    monkeypatch.setattr(learning_proofs.killed_training, "identical", identical)
    result = learning_proofs.killed(bench, "")
    assert result.value == 1 and result.text == "1 of 5"
    assert asked == [(seed, "ppo") for seed in range(5)]


@pytest.mark.parametrize(("low", "broken"), [(2.0, ""), (-1.0, "no difference shown")])
def test_tuning_is_judged_by_its_held_out_test(low: float, broken: str) -> None:
    gain = {"mean": 5.0, "low": low, "high": 9.0, "seeds": 20}
    tested = {"gain": gain, "unit": "tokens/s", "wilcoxon_p": 0.01}
    results = {"best": {"controller": "adaptivespec(probe=6)"}, "held_out": [tested], "trials": []}
    result = learning_tuned.of_study(results)
    assert result.value == 5.0 and result.broken == broken
    assert learning_tuned.of_study(results | {"held_out": []}).broken
