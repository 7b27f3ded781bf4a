"""The tables of docs/environment.md, from the code: what is seen, chosen, earned and told.

`python -m envs.tables` prints them; a test holds the page to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from engine.protocol import Limits
from envs.reward import PARTS, GoodputReward
from policies.actions import DIMENSIONS, ActionTable
from policies.features import POSITIONS, Feature, feature_table
from policies.path_features import COPIES, path_table
from policies.request_features import request_table

CLASS = "CLASS"
"""Stands for the name of every class in turn."""
ONE_SLOT = Limits(slots=1)
"""Of the engine whose paths are described."""
EARNED = {
    "valid": "tokens that kept to their request's objective",
    "violations": "`violation_tokens` for each request that ended without meeting its objectives",
    "time": "`price` for each token time; 0 in the form `rate`",
    "tail": "`tail_price` for each token by which a request is behind, 32 of one at most",
    "waiting": "`waiting_price` by how long who waits longest has waited, all of it from 1,024 "
    "token times on",
    "energy": "`joule_tokens` for each joule",
    "switching": "`switch_tokens` for each class whose plan the action changed",
}
TOLD = {
    "elapsed_s": "seconds of the engine's clock between two decisions: discount by γ to this power",
    "busy_s": "seconds of it in which the engine worked",
    "clock_s": "the engine's clock",
    "iterations": "engine iterations",
    "emitted_tokens": "tokens, and",
    "valid_tokens": "those of them in time",
    "finished": "requests that ended, of them",
    "attained": "those that met all objectives, and",
    "missed": "those with an objective that did not",
    "cost": "violations, for constrained learning: `missed`",
    "energy_joules": "joules; modelled where `engine.power_is_measured` is 0",
    "waiting": "how long who waits longest has waited at the end of the step: a share of 1,024 "
    "token times, at most 1",
    "time/STAGE": "seconds in prefill, draft, select, verify, controller, other",
    "reward/PART": "the parts of the reward",
    "serving": "with the last step of an episode: its figures (docs/evaluation.md)",
}


def tables() -> dict[str, list[str]]:
    """Lines of Markdown by heading."""
    table, reward = ActionTable((CLASS,)), GoodputReward()
    tiers = (table.depths, table.widths, table.nodes, table.margins)
    return {
        "features": _table(
            ("feature", "unit", "range", "from the view's"),
            [_feature_row(f) for f in feature_table((CLASS,)) if not _is_further_position(f)],
        ),
        "requests": _table(
            ("feature of a request", "unit", "range", "from the view's"),
            [_feature_row(f) for f in request_table((CLASS,)) if not _is_further_position(f)],
        ),
        "paths": _table(
            ("feature of a tree", "unit", "range", "from"), _path_rows(path_table(ONE_SLOT))
        ),
        "actions": _table(
            ("entry", "tiers"),
            (
                (f"{CLASS}.{name}", ", ".join(map(str, of)))
                for name, of in zip(DIMENSIONS, tiers, strict=True)
            ),
        ),
        "reward": _table(("part", "valid tokens per slot"), ((p, EARNED[p]) for p in PARTS)),
        "prices": _table(
            ("option", "default"),
            ((f.name, f"{getattr(reward, f.name)}") for f in fields(reward)),
        ),
        "info": _table(("key", "what it tells"), TOLD.items()),
    }


def _is_further_position(feature: Feature) -> bool:
    """Told in the row of position 1."""
    stem, _, position = feature.name.rpartition("_")
    return bool(stem) and position.isdecimal() and int(position) > 1


def _path_rows(features: Sequence[Feature]) -> list[tuple[str, ...]]:
    """The scores of all layers in one row, the copies of a number in another."""
    first: dict[str, Feature] = {}
    for feature in features:
        first.setdefault(feature.name.split("_")[0], feature)
    names = {"path.score": "path.score_LAYER_RANK"}
    return [
        (names.get(stem, f"{stem}_1 … {COPIES}"), *_feature_row(feature)[1:])
        for stem, feature in first.items()
    ]


def _feature_row(feature: Feature) -> tuple[str, ...]:
    name = feature.name
    if name.endswith("_1"):
        name += f" … {POSITIONS}"
    return name, feature.unit, f"{feature.low:g} … {feature.high:g}", feature.source


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    head = [list(columns), ["---"] * len(columns)]
    return ["| " + " | ".join(cells) + " |" for cells in (*head, *rows)]


if __name__ == "__main__":
    for heading, lines in tables().items():
        print(f"{heading}\n", *lines, "", sep="\n")
