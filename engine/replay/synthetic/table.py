"""The pairs that are made of SpecForge's table of accept lengths and of AdaServe's figure."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from pathlib import Path

from engine.errors import UserError
from engine.replay.synthetic.fit import ALL_FITTED, Figures, Given, fit_pair
from engine.replay.synthetic.model import Tier
from engine.replay.synthetic.pairs import Pair, Published, TextKind

SPECFORGE = "sgl-project/SpecForge, commit a6b6b02, docs/spec_bundle: SGLang on H200"
ADASERVE = "AdaServe (EuroSys 2026), figure 12, vLLM-Spec(4), (6) and (8), read off the plot"
STANDS_FOR = {
    "coding": ("humaneval", "livecodebench"),
    "chat": ("mtbench",),
    "maths": ("math500", "gsm8k"),
    "summarization": ("financeqa",),
}
"""Whose benchmark a class takes, the first that was published. No table has summaries: questions
on long financial reports are the nearest (ours)."""
HEADING = """Published acceptance, and the model's parameters fitted to it.
Written by `python -m engine.replay.synthetic --fit shared/data/speculation/specforge_eagle3.csv.gz`
A row of `published` is depth, width, nodes without the root, tokens an iteration with the bonus."""


def read_table(path: Path) -> dict[tuple[str, str], dict[str, list[Published]]]:
    """Figures by (target, draft) and benchmark. Raises UserError for another kind of file."""
    found: dict[tuple[str, str], dict[str, list[Published]]] = defaultdict(dict)
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["draft"] == "none":
                    continue
                # SGLang counts the root among the draft tokens.
                tier = Tier(int(row["steps"]), int(row["topk"]), int(row["num_draft_tokens"]) - 1)
                figure = Published(tier, float(row["accept_length"]))
                kinds = found[row["target_model"], row["draft"]]
                kinds.setdefault(row["benchmark"], []).append(figure)
    except (OSError, KeyError, ValueError) as error:
        raise UserError(
            f"{path} is not SpecForge's table ({error}); expected specforge_eagle3.csv.gz"
        ) from error
    return dict(found)


def fitted_pairs(path: Path) -> list[Pair]:
    """All pairs, AdaServe's first."""
    return [adaserve_pair(), *(_pair(*key, rows) for key, rows in read_table(path).items())]


def adaserve_pair() -> Pair:
    """Llama-3.1-70B with Llama-3.2-1B; classes alike, since the figure does not tell them apart.

    Three figures tell three parameters: depth costs nothing and the stickiness is 0.5 (ours).
    """
    rows = {
        "all": [
            Published(Tier(depth, 1, depth), accepted + 1.0)
            for depth, accepted in ((4, 3.4), (6, 5.0), (8, 6.6))
        ]
    }
    classes = dict.fromkeys(("coding", "chat", "summarization"), "all")
    return _fitted(
        "adaserve-llama-70b",
        "meta-llama/Llama-3.1-70B-Instruct",
        "meta-llama/Llama-3.2-1B-Instruct",
        ADASERVE,
        "figure of a paper (three numbers)",
        rows,
        classes,
        Given(stickiness=0.5, decay=1.0),
    )


def _pair(model: str, draft: str, rows: Figures) -> Pair:
    classes = {
        name: next(kind for kind in kinds if kind in rows)
        for name, kinds in STANDS_FOR.items()
        if any(kind in rows for kind in kinds)
    }
    name = f"{model}--{draft}".replace("/", "-").lower()
    return _fitted(name, model, draft, SPECFORGE, "MIT", rows, classes, ALL_FITTED)


def _fitted(
    name: str,
    model: str,
    drafter: str,
    source: str,
    licence: str,
    rows: Figures,
    classes: dict[str, str],
    given: Given,
) -> Pair:
    fit = fit_pair(rows, given)
    kinds = {kind: TextKind(tuple(rows[kind]), fit.easy_share[kind]) for kind in rows}
    return Pair(name, model, drafter, source, licence, fit.drafting, kinds, classes)
