"""AdaptiveSpec on live: its three modes over EAGLE-3's published tree and over the best fixed one.

Batch 1 and 8 over prompts of GSM8K, MATH-500 and HumanEval. The best fixed tree and AdaptiveSpec's
sizes are chosen on other prompts (`benchmarks.adaptivespec_sizes`): its default ends are ours, for
a card. A margin changes the text, so beside its speed stands what it gives up: tokens that the
target did not choose, the mean log-ratio of those, and how many final answers stay those of the
lossless run. The answer is the last number of a text, of code the text itself.

At a batch everybody is served once, and all figures are read from that: both axes at the default
margin are a point of the frontier, and the tree alone its point without a margin, m = 1. Answers
are cut at 144 tokens, so one that was not reached by then counts as its text.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from benchmarks import ratios
from benchmarks.adaptivespec_sizes import BOTH, CHOOSING, MARGIN, TREE, Contenders, contenders
from benchmarks.bench import Bench, Prompts
from benchmarks.decoding import Served, requests_of, serve
from benchmarks.figures import Result, UnmeasuredError
from benchmarks.published_runs import need_controller
from benchmarks.speed import split_prompts
from engine.protocol import Outcome
from policies import registry
from policies.delegate import Delegate, delegating

SETS = ("gsm8k", "math500", "humaneval")
PUBLISHED = "eagle3(7, 8, 60)"
"""EAGLE-3's depth and nodes; its width of 10 is beyond this engine's 8."""
MARGINS, QUICK_MARGINS = (0.98, 0.9, 0.8, 0.6), (0.6,)
"""The last is the controllers' default, at which `adaptivespec-margin` runs too."""
LEAST_KEPT = 0.93
TOKENS, QUICK_TOKENS = 144, 24
EACH = {1: 5, 8: 8}
"""Prompts of a set that are reported, by batch: one answer of each 15 or 24 may change."""
QUICK_EACH = {1: 1, 8: 3}
CODE = "humaneval"
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


class Run(NamedTuple):
    """A contender over all prompts."""

    served: tuple[Served, ...]
    let_through: int
    given_up: float

    @property
    def outputs(self) -> list[list[int]]:
        """In the order of the prompts."""
        return [output for served in self.served for output in served.outputs]

    @property
    def tokens(self) -> int:
        """Emitted after the first."""
        return sum(served.tokens for served in self.served)


def modes(bench: Bench, running: str) -> Result:
    """Throughput of the lossless mode over the best fixed tree; the three modes side by side."""
    margins = QUICK_MARGINS if bench.quick else MARGINS
    runs, of, names = _runs(bench, int(running), margins)
    specs = {
        "published tree": PUBLISHED,
        "lossless, default sizes": TREE,
        "lossless": of.tree,
        "margin alone": of.margin,
        "both": of.both[margins[-1]],
    }
    ratio = {label: _ratio(bench, runs[spec], runs[of.best]) for label, spec in specs.items()}
    published = {label: _ratio(bench, runs[spec], runs[PUBLISHED]) for label, spec in specs.items()}
    return Result(
        ratio["lossless"].value,
        f"{ratio['lossless']}×",
        note="; ".join(
            f"{label} {ratio[label]}× best fixed, {published[label]}× published" for label in specs
        )
        + f"; best fixed is {of.best}, lossless {of.tree}, margin alone {of.margin}, both "
        f"{of.both[margins[-1]]}; {len(names)} prompts",
        raw={
            "best_fixed": of.best,
            "specs": specs,
            "over_best_fixed": {label: r._asdict() for label, r in ratio.items()},
            "over_published": {label: r._asdict() for label, r in published.items()},
            "both_over_either": ratio["both"].value
            / max(ratio["lossless"].value, ratio["margin alone"].value),
            "prompts": len(names),
            "frontier": {
                f"{margin:g}": point(bench, runs[spec], runs[PUBLISHED], names)
                for margin, spec in {1.0: of.tree, **of.both}.items()
            },
        },
    )


def point(bench: Bench, run: Run, lossless: Run, names: list[str]) -> dict[str, Any]:
    """What a run has over the lossless one, and what it gave up for it."""
    return {
        "speed": _ratio(bench, run, lossless)._asdict(),
        "kept": kept(bench, lossless.outputs, run.outputs, names),
        "let_through": run.let_through / max(run.tokens, 1),
        "mean_log_ratio": run.given_up / max(run.let_through, 1),
    }


def both_axes(bench: Bench, running: str) -> Result:
    """Throughput of both axes over the faster of either alone; read from the modes' row."""
    value = float(_from_modes(bench, running, "both_over_either"))
    return Result(value, f"{value:.2f}×")


def frontier(bench: Bench, running: str) -> Result:
    """Throughput over the published tree at the fastest margin that keeps 93 % of the answers.

    Read from the modes' row.
    """
    points: dict[str, dict[str, Any]] = _from_modes(bench, running, "frontier")
    keeping = {m: p for m, p in points.items() if p["kept"] >= LEAST_KEPT}
    note = "; ".join(
        f"m = {m}: {p['speed']['value']:.2f}×, {100 * p['kept']:.0f} % of answers kept, "
        f"{100 * p['let_through']:.1f} % let through, log-ratio {p['mean_log_ratio']:.2f} given up"
        for m, p in points.items()
    )
    if not keeping:
        return Result(float("nan"), "no margin keeps them", note, {"points": points})
    top = max(keeping, key=lambda m: keeping[m]["speed"]["value"])
    value = keeping[top]["speed"]["value"]
    return Result(value, f"{value:.2f}× at m = {top}", note, {"points": points})


def _from_modes(bench: Bench, running: str, key: str) -> Any:
    name = f"adaptivespec_batch{running}"
    row = bench.rows.get(name)
    if row is None or key not in row.raw:
        raise UnmeasuredError(f"it is read from {name}, which has not been measured")
    return row.raw[key]


class Counting(Delegate):
    """A controller, and what its margins let through."""

    let_through, given_up = 0, 0.0

    def observe(self, outcome: Outcome) -> None:
        """Counts, and tells the controller."""
        self.let_through += int(outcome.let_through[outcome.ran].sum())
        self.given_up += float(outcome.given_up[outcome.ran].sum())
        super().observe(outcome)


def reported_prompts(bench: Bench, running: int) -> tuple[list[tuple[str, list[int]]], Prompts]:
    """At a batch, what is reported, each with its set's name, and what a tree is chosen on."""
    each = (QUICK_EACH if bench.quick else EACH)[running]
    choosing = 1 if bench.quick else CHOOSING[running]
    chosen_on, reported_on = split_prompts(bench, SETS, choosing, each)
    return reported_on, [prompt for _, prompt in chosen_on]


def _runs(
    bench: Bench, running: int, margins: tuple[float, ...]
) -> tuple[dict[str, Run], Contenders, list[str]]:
    """Every contender over the same prompts, who goes first rotating; who they are, and the
    prompts' sets.
    """
    for name in (PUBLISHED, TREE, MARGIN, BOTH):
        need_controller(name)
    tokens = QUICK_TOKENS if bench.quick else TOKENS
    reported_on, chosen_on = reported_prompts(bench, running)
    of = contenders(bench, chosen_on, running, margins)
    specs = tuple(dict.fromkeys((PUBLISHED, TREE, *of.all)))
    prompts = [prompt for _, prompt in reported_on]
    groups = [prompts[i : i + running] for i in range(0, len(prompts), running)]
    found: dict[str, list[Served]] = {spec: [] for spec in specs}
    counting = {
        spec: delegating(Counting, made)(made) for spec in specs for made in [registry.make(spec)]
    }
    for index, group in enumerate(groups):
        turn = index % len(specs)
        for spec in (*specs[turn:], *specs[:turn]):
            bench.say(f"batch {running}: {spec}, group {index + 1} of {len(groups)}")
            requests = requests_of(group, tokens, bench.stop_ids)
            found[spec].append(serve(bench.server, requests, counting[spec], len(group)))
    runs = {
        spec: Run(tuple(found[spec]), counting[spec].let_through, counting[spec].given_up)
        for spec in specs
    }
    return runs, of, [name for name, _ in reported_on]


def _ratio(bench: Bench, ours: Run, theirs: Run) -> ratios.Ratio:
    columns = [
        np.array([getattr(s, name) for s in run.served], float)
        for run in (ours, theirs)
        for name in ("tokens", "seconds")
    ]
    return ratios.of_rates(columns[0], columns[1], columns[2], columns[3], bench.rng())


def kept(bench: Bench, lossless: Prompts, other: Prompts, names: list[str]) -> float:
    """Share of final answers that are those of the lossless run."""
    same = [
        answer(bench, a, name) == answer(bench, b, name)
        for a, b, name in zip(lossless, other, names, strict=True)
    ]
    return sum(same) / len(same)


def answer(bench: Bench, output: list[int], name: str) -> object:
    """The last number of a text; of code, or where there is none, the tokens."""
    tokenizer = bench.server.tokenizer
    if tokenizer is None or name == CODE:
        return tuple(output)
    numbers = NUMBER.findall(tokenizer.decode(output))
    return numbers[-1].replace(",", "") if numbers else tuple(output)
