"""From timed samples to points: medians over repeats, how far these lie apart, what is held out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from engine.errors import UserError
from engine.prefilling import Chunk
from engine.profile.measure import Step
from engine.protocol import Bools, Floats

HELD_OUT_SHARE = 0.25
# From a median absolute deviation to the standard error of a median, were the times normal.
OF_MEDIAN_DEVIATION = 1.4826 * 1.2533

Sample = TypeVar("Sample", Step, Chunk)


@dataclass(frozen=True)
class Points(Generic[Sample]):
    """P points that were each timed several times; a point's features are the same in all."""

    repeats: list[list[Sample]]

    def feature(self, name: str) -> Floats:
        """[P] a field of the samples."""
        return np.array([getattr(repeats[0], name) for repeats in self.repeats], float)

    def times(self, *parts: str) -> list[Floats]:
        """The repeats' times of each point; `parts` are the fields that are added up."""
        return [
            np.array([sum(getattr(sample, part) for part in parts) for sample in repeats])
            for repeats in self.repeats
        ]

    def seconds(self, *parts: str) -> Floats:
        """[P] medians over the repeats."""
        return np.array([np.median(times) for times in self.times(*parts)])

    def noise(self, *parts: str) -> Floats:
        """How far every repeat lies from its point's median, relative to it.

        Points timed once say nothing.
        """
        off = [_off(times) for times in self.times(*parts) if len(times) > 1]
        return np.concatenate(off) if off else np.zeros(0)

    def standard_error(self, *parts: str) -> Floats:
        """[P] of each point's median, relative to it; of one timed once, the largest of all.

        By the median deviation of a point's repeats, so one disturbed repeat does not spoil it.
        """
        error = np.array([_standard_error(times) for times in self.times(*parts)])
        known = error[np.isfinite(error)]
        return np.where(np.isfinite(error), error, known.max(initial=0.0))

    def only(self, chosen: Bools) -> Points[Sample]:
        """The chosen points [P]."""
        pairs = zip(self.repeats, chosen.tolist(), strict=True)
        return Points([repeats for repeats, wanted in pairs if wanted])


def step_points(steps: Sequence[Step]) -> Points[Step]:
    """A step's repeat has the same place in the same episode.

    Where rounding made the text take another course, contexts differ, and it is a point of its own.
    """
    return _grouped(steps, lambda s: (s.episode, s.place, s.tokens, s.first_rows, s.kv_tokens))


def chunk_points(chunks: Sequence[Chunk]) -> Points[Chunk]:
    """Chunks of one length at one place of a prompt are one point, whoever the prompt is of."""
    return _grouped(chunks, lambda chunk: (chunk.tokens, chunk.context_tokens, chunk.ends_prompt))


def held_out_steps(points: Points[Step], generator: np.random.Generator) -> Bools:
    """[P] which steps no fit may see: about a quarter of the trees of every batch.

    A tree is held out with all its places in an episode. The smallest and the largest passes stay
    in, since curves are not asked to tell what lies outside them. Raises UserError when there are
    too few points to leave any out.
    """
    keys = [(repeats[0].episode, *repeats[0].shape) for repeats in points.repeats]
    return _drawn(keys, _ends(points, "tokens", "first_rows"), generator)


def held_out_chunks(points: Points[Chunk], generator: np.random.Generator) -> Bools:
    """[P] which chunks no fit may see: about a quarter; as `held_out_steps` otherwise."""
    keys = list(range(len(points.repeats)))
    return _drawn(keys, _ends(points, "tokens", "context_tokens"), generator)


def _grouped(samples: Sequence[Sample], key: Callable[[Sample], tuple[int, ...]]) -> Points[Sample]:
    groups: dict[tuple[int, ...], list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[key(sample)].append(sample)
    return Points(list(groups.values()))


def _ends(points: Points[Sample], *names: str) -> set[int]:
    """Points with the smallest (above 0) and the largest values of features."""
    ends = set()
    for name in names:
        values = points.feature(name)
        ends |= {int(values.argmax()), int(np.where(values > 0, values, np.inf).argmin())}
    return ends


def _drawn(keys: Sequence[Hashable], ends: set[int], generator: np.random.Generator) -> Bools:
    """[P] a quarter of the different keys, without those of the points `ends`."""
    kept = {keys[index] for index in ends}
    candidates = [key for key in dict.fromkeys(keys) if key not in kept]
    if not candidates:
        raise UserError(
            f"only {len(set(keys))} different passes of a kind could be measured, too few to check "
            "a fit on others; give the server more slots and a longer context"
        )
    count = max(1, round(HELD_OUT_SHARE * len(candidates)))
    out = {candidates[i] for i in generator.permutation(len(candidates))[:count].tolist()}
    return np.array([key in out for key in keys])


def _off(times: Floats) -> Floats:
    """Relative deviations from the median, either way; 0 for what takes no time."""
    middle = float(np.median(times))
    return np.abs(times / middle - 1) if middle > 0 else np.zeros(len(times))


def _standard_error(times: Floats) -> float:
    if len(times) < 2:
        return float("nan")
    return OF_MEDIAN_DEVIATION * float(np.median(_off(times))) / float(np.sqrt(len(times)))
