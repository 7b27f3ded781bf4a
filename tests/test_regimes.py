"""Who is best where: on made-up scores, beside figures worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eval.matrix.axes import AXES
from eval.matrix.regimes import _verdict, judged, loads_by_target, regimes
from eval.matrix.scores import Scores
from eval.matrix.tails import worst
from eval.statistics import Interval, interquartile_mean, mean_interval

CELLS, SEEDS = 12, 3


def scores(shift: float = 0.1, seed: int = 0) -> Scores:
    """Three controllers in twelve cells of two loads: good is `shift` above plain, as is twin."""
    rng = np.random.default_rng(seed)
    hard = rng.uniform(0.3, 0.6, (CELLS, 1)) + rng.normal(0, 0.01, (CELLS, SEEDS))
    values = np.stack([hard, hard + shift, hard + shift])
    values[2] += rng.normal(0, 0.02, (CELLS, SEEDS))
    places = {axis: ["the one"] * CELLS for axis in AXES}
    places["load"] = ["0.3", "1.3"] * (CELLS // 2)
    seeds = [[SEEDS * i + k for k in range(SEEDS)] for i in range(CELLS)]
    names, cells = ("plain", "good", "twin"), tuple(f"cell {i}" for i in range(CELLS))
    return Scores(names, cells, places, {"attainment": values, "goodput": values.copy()}, seeds, [])


def everywhere(of: Scores) -> dict[str, Any]:
    return judged(of, np.ones(CELLS, np.bool_), np.random.default_rng(0), draws=300)


def test_who_is_apart_wins_and_who_is_not_is_called_level() -> None:
    found = everywhere(scores())
    verdict = found["verdicts"]["goodput"]
    assert verdict["beats"] == ["plain"] and len(verdict["level_with"]) == 1
    assert "beats plain on goodput" in verdict["says"]
    assert "no difference shown" in verdict["says"]
    says = {(d["subject"], d["other"]): d["says"] for d in found["differences"]}
    assert says["plain", "good"] == "good beats plain on goodput"
    assert says["good", "twin"] == "good against twin on goodput: no difference shown"


def test_figures_are_interquartile_means_with_intervals_of_seeds_within_cells() -> None:
    of = scores()
    found = everywhere(of)["controllers"]
    for c, name in enumerate(of.controllers):
        values, figure = of.of["goodput"][c], found[name]["goodput"]
        assert figure["value"] == pytest.approx(float(interquartile_mean(values.ravel())))
        assert figure["low"] < figure["value"] < figure["high"]
        cells = np.repeat(np.arange(CELLS), SEEDS).tolist()
        same = mean_interval(
            values.ravel(), np.random.default_rng(9), strata=cells, statistic=interquartile_mean
        )
        assert figure["high"] - figure["low"] == pytest.approx(same.high - same.low, rel=0.2)
        assert found[name]["goodput_mean"]["value"] == pytest.approx(float(values.mean()))


def test_a_pairs_difference_is_that_of_what_is_shown_and_common_luck_cancels() -> None:
    found = everywhere(scores())
    (row,) = [
        d
        for d in found["differences"]
        if (d["subject"], d["other"], d["metric"]) == ("plain", "good", "goodput")
    ]
    shown = found["controllers"]
    difference = shown["plain"]["goodput"]["value"] - shown["good"]["goodput"]["value"]
    assert row["value"] == pytest.approx(difference)
    assert row["high"] - row["low"] < 1e-9  # good is plain and a constant
    assert row["hodges_lehmann"] == pytest.approx(-0.1)
    assert row["wilcoxon_p_holm"] == pytest.approx(6 * 0.5**CELLS, rel=1)
    best = found["verdicts"]["goodput"]["best"]
    assert ("improvement" in row) == (best == "good")
    assert row.get("improvement", {"value": 0.0})["value"] == 0.0


def test_nobody_wins_against_the_same_law() -> None:
    wins = 0
    for seed in range(10):
        of = scores(0.0, seed)
        values = of.of["goodput"]
        rng = np.random.default_rng(100 + seed)
        values[:] = values[0] + rng.normal(0, 0.05, values.shape)
        wins += bool(everywhere(of)["verdicts"]["goodput"]["beats"])
    assert wins <= 2


def test_who_raised_in_a_cell_is_judged_on_the_others() -> None:
    of = scores()
    of.of["goodput"][1, 3] = np.nan
    found = everywhere(of)
    known = np.delete(of.of["goodput"][1], 3, axis=0)
    figure = found["controllers"]["good"]["goodput"]["value"]
    assert figure == pytest.approx(float(interquartile_mean(known.ravel())))
    assert found["verdicts"]["goodput"]["beats"] == ["plain"]
    of.of["goodput"][1] = np.nan
    verdict = everywhere(of)["verdicts"]["goodput"]
    assert verdict["best"] == "twin" and verdict["beats"] == ["plain"]


def test_who_raised_in_the_hard_cells_does_not_lead_by_it() -> None:
    of = scores()
    for values in of.of.values():
        values[:, : CELLS // 2] += 0.4  # easy
        values[0, CELLS // 2 :] = np.nan
    found = everywhere(of)
    shown = {name: of["goodput"]["value"] for name, of in found["controllers"].items()}
    assert max(shown, key=lambda name: shown[name]) == "plain"
    verdict = found["verdicts"]["goodput"]
    assert verdict["best"] != "plain" and verdict["beats"] == ["plain"]
    assert not verdict["beaten_by"]


def test_who_is_shown_to_beat_the_leader_is_not_called_level() -> None:
    """A circle: each is shown to beat the next one, in cells that only those two have."""
    ahead, behind = Interval(1.0, 0.5, 1.5, 9), Interval(-1.0, -1.5, -0.5, 9)
    found = {(0, 1): (ahead, 1.0, np.ones(3)), (1, 2): (ahead, 1.0, np.ones(3))}
    found[0, 2] = behind, 1.0, np.ones(3)
    figures = [Interval(value, value, value, 9) for value in (3.0, 2.0, 1.0)]
    assert _verdict("goodput", ("a", "b", "c"), figures, found) == {
        "best": "a",
        "beats": ["b"],
        "level_with": [],
        "beaten_by": ["c"],
        "says": "a beats b on goodput; c beats a on goodput",
    }


def test_classes_without_objective_leave_no_verdict() -> None:
    of = scores()
    of.of["attainment"][:] = np.nan
    assert everywhere(of)["verdicts"]["attainment"]["says"] == "nobody has a score"


def test_regimes_are_the_values_of_axes_that_vary() -> None:
    found = regimes(scores(), np.random.default_rng(0), draws=100)
    assert [(of["axis"], of["value"], of["cells"]) for of in found] == [
        ("load", "0.3", 6),
        ("load", "1.3", 6),
    ]
    crossed = loads_by_target(scores(), np.random.default_rng(0), draws=100)
    assert [(of["target"], of["load"]) for of in crossed] == [
        ("the one", "0.3"),
        ("the one", "1.3"),
    ]


def test_the_worst_runs_are_worse_than_the_mean_and_profiles_fall() -> None:
    of = scores()
    found = worst(of, np.random.default_rng(0))["controllers"]["good"]
    assert found["cvar_5"]["value"] < of.of["attainment"][1].mean()
    profile = [point["value"] for point in found["profile"]]
    assert profile == sorted(profile, reverse=True) and profile[0] == 1.0
