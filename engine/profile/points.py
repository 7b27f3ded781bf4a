"""From timed steps to points: medians over repeats, how far repeats lie apart, what is held out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.errors import UserError
from engine.profile.measure import Step
from engine.protocol import Bools, Floats

HELD_OUT_SHARE = 0.25


class Points(NamedTuple):
    """P points that were each timed several times; what a step's features are is the same in all.

    Times are medians [P] over a point's repeats.
    """

    steps: list[Step]  # one of the repeats, for its features
    prefill_s: Floats
    draft_s: Floats
    verify_s: Floats
    host_s: Floats
    repeats: list[list[Step]]

    def feature(self, name: str) -> Floats:
        """[P] a field of `Step`."""
        return np.array([getattr(step, name) for step in self.steps], float)

    def noise(self, seconds: tuple[str, ...], chosen: Bools) -> Floats:
        """How far repeats of the chosen points lie from their point's median, relative to it.

        `seconds` are the fields of `Step` that are added up. Points timed once say nothing.
        """
        off: list[float] = []
        for repeats in (r for r, wanted in zip(self.repeats, chosen, strict=True) if wanted):
            times = np.array([sum(getattr(step, name) for name in seconds) for step in repeats])
            if len(times) > 1 and np.median(times) > 0:
                off += (np.abs(times / np.median(times) - 1)).tolist()
        return np.array(off)


def points_of(steps: Sequence[Step]) -> Points:
    """Group the steps that repeat each other.

    A repeat has the same place in the same episode. Where rounding made the text take another
    course, contexts differ, and it is a point of its own.
    """
    groups: dict[tuple[int, ...], list[Step]] = defaultdict(list)
    for step in steps:
        groups[step.episode, step.place, step.tokens, step.first_rows, step.kv_tokens].append(step)
    repeats = list(groups.values())

    def medians(name: str) -> Floats:
        return np.array([np.median([getattr(step, name) for step in group]) for group in repeats])

    return Points(
        steps=[group[0] for group in repeats],
        prefill_s=medians("prefill_s"),
        draft_s=medians("draft_s"),
        verify_s=medians("verify_s"),
        host_s=medians("host_s"),
        repeats=repeats,
    )


def held_out(points: Points, generator: np.random.Generator) -> Bools:
    """[P] which points no fit may see: about a quarter of the trees of every batch, and of prompts.

    A tree is held out with all its places in an episode. The smallest and the largest passes stay
    in, since curves are not asked to tell what lies outside them. Raises UserError when there are
    too few points to leave any out.
    """
    keys = [(step.episode, *step.shape) for step in points.steps]
    ends = set()
    for name in ("tokens", "prompt_tokens", "first_rows"):
        values = points.feature(name)
        smallest = np.where(values > 0, values, np.inf).argmin()
        ends |= {keys[int(values.argmax())], keys[int(smallest)]}
    prompts = {key for key, n in zip(keys, points.feature("prompt_tokens"), strict=True) if n > 0}
    out = set()
    for kind in (prompts, set(keys) - prompts):
        candidates = sorted(kind - ends)
        if not candidates:
            raise UserError(
                f"only {len(kind)} different steps of a kind could be measured, too few to check a "
                "fit on others; give the server more slots and a longer context"
            )
        count = max(1, round(HELD_OUT_SHARE * len(candidates)))
        out |= {candidates[i] for i in generator.permutation(len(candidates))[:count]}
    return np.array([key in out for key in keys])
