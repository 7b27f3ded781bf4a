"""Lossless in float32: how often a tree's text departs from ordinary decoding's, and why.

A pass over another number of tokens adds in another order, so the two likeliest tokens may change
places where they are all but equal. A departure is allowed only there (ALGORITHMS.md §3): the gap
between the two is looked up by reading the prompt and the common text once more, in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, cycle, islice
from typing import NamedTuple

from benchmarks.bench import Bench
from benchmarks.decoding import requests_of, serve
from benchmarks.figures import Result
from benchmarks.unfinished import Unfinished
from engine.serving import LiveServer
from eval.lossless.departures import CLOSE, common, top_gap
from eval.versions import versions
from policies.registry import make

TREES = ("chain(4)", "eagle3(3,4,8)", "eagle3(6,8,32)")
ALONE = "autoregressive"
TOKENS = 128
TOKENS_COMPARED = 100_000
QUICK_TOKENS_COMPARED = 2_000
PER = 100_000


class Departure(NamedTuple):
    """Where a text first differs."""

    tree: str
    place: int
    """Of the answer's tokens."""
    gap: float
    """Between the two largest logits there."""


def departures(bench: Bench, sets: str) -> Result:
    """Departures in 100,000 tokens over all trees; one that rounding does not explain breaks it.

    That takes an hour or two on a processor, so that what is compared is kept as it grows.
    """
    server, wanted = bench.server, QUICK_TOKENS_COMPARED if bench.quick else TOKENS_COMPARED
    running = server.settings.limits.slots
    by_turns = cycle(chain.from_iterable(zip(*map(bench.prompts, sets.split()), strict=False)))
    so_far = _unfinished(bench, sets)
    turns, compared, found, revisions = _taken_up(so_far)
    next(islice(by_turns, turns * running, turns * running), None)  # those that were served before
    while compared < wanted:
        prompts = list(islice(by_turns, running))
        plain = _texts(server, prompts, ALONE, running)
        for number, tree in enumerate(TREES):
            # Fewer requests at a time for each further tree: other batch shapes.
            texts = _texts(server, prompts, tree, max(running >> (2 * number), 1))
            for prompt, one, other in zip(prompts, plain, texts, strict=True):
                same = common(one, other)
                compared += min(same + 1, len(one))
                if same < len(one):
                    gap = top_gap(server.decoder, prompt + one[:same])
                    found.append(Departure(tree, same, gap))
        turns += 1
        if so_far is not None:
            so_far.save([turns, compared, found, revisions])
        bench.say(f"{compared:,} of {wanted:,} tokens, {len(found)} departures")
    if so_far is not None:
        so_far.forget()
    unexplained = [d for d in found if not d.gap < CLOSE]
    rate = PER * len(found) / compared
    return Result(
        value=rate,
        text=f"{rate:.2g} ({len(found)} in {compared:,})",
        note=f"largest gap at a departure {max((d.gap for d in found), default=0.0):.1e}",
        broken=_told(unexplained),
        raw={
            "compared": compared,
            "departures": [d._asdict() for d in found],
            "trees": list(TREES),
            "dtype": str(server.decoder.dtype),
            "revisions": revisions,
        },
    )


def _unfinished(bench: Bench, sets: str) -> Unfinished | None:
    """Where what was compared so far is kept."""
    if bench.unfinished is None:
        return None
    made_with = {
        "sets": sets,
        "trees": list(TREES),
        "tokens": TOKENS,
        "running": bench.server.settings.limits.slots,
        "dtype": str(bench.server.decoder.dtype),
        "model": bench.server.name,
        "drafter": bench.server.drafter.name,
    }
    return Unfinished(bench.unfinished / "text.unfinished.json", made_with)


def _taken_up(so_far: Unfinished | None) -> tuple[int, int, list[Departure], list[str]]:
    """Batches and tokens compared before, departures among them, and by which revisions."""
    saved = None if so_far is None else so_far.load()
    turns, compared, found, revisions = saved or (0, 0, [], [])
    this = str(versions()["revision"])
    return turns, compared, [Departure(*one) for one in found], sorted({*revisions, this})


def _told(unexplained: Sequence[Departure]) -> str:
    if not unexplained:
        return ""
    first = unexplained[0]
    return (
        f"{len(unexplained)} departures that rounding does not explain, the first of {first.tree} "
        f"at token {first.place}, where the two likeliest are {first.gap:.1e} apart"
    )


def _texts(
    server: LiveServer, prompts: Sequence[list[int]], name: str, running: int
) -> list[list[int]]:
    return serve(server, requests_of(prompts, TOKENS), make(name), running).outputs
