"""Requests for a replay server from a workload: when they come is drawn as on live, what they ask
is recorded.

Arrivals are `engine.workload`'s own, so a seed brings the same ones here and there, as far as both
servers have the same capacity or the workload states its rate. A request takes a recorded text of
its class: one for training, or one that no training draws. It says what the target said, and ends
where the target ended, at the length that the workload asks for, or at the recording's end. A trace
says how long its answers were, so its requests take texts that are recorded so far and go on behind
the target's own end. Prompts are as long as they were recorded; while a disturbance stretches them,
the text of the class is taken whose prompt comes nearest to the length that is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from engine.classes import DEFAULT_CLASSES, ClassTable
from engine.errors import UserError
from engine.protocol import Floats
from engine.replay.recorded_request import RecordedRequest
from engine.replay.recording import Recording
from engine.replay.server import ReplayServer
from engine.request import Request
from engine.workload import DrawnRequests, Episode, WorkloadConfig
from engine.workload.arrivals import counts_in_capacity
from engine.workload.capacity_mix import Asked, class_shares
from engine.workload.disturbances import COLUMNS
from engine.workload.episode import draw_arrivals
from engine.workload.text_draws import draw_all, next_text, text_after
from engine.workload.traces import ArrivalSource

OUTPUT_LENGTH = COLUMNS.index("output_length")
LENGTHS_S = 3600.0
"""So long a sample tells how long a generated trace's answers are."""


class Text(NamedTuple):
    """A recorded text as a request asks for it."""

    number: int
    """Its index in the recording."""
    prompt: list[int]
    tokens: int
    """Output tokens that are recorded."""
    stop_ids: frozenset[int]
    """The token by which the target ended, where it did."""
    ended: int
    """Output tokens up to that one, NEVER where the target did not end."""


class RecordedDrawing:
    """Episodes of one workload on one recording; called with a generator it gives the requests.

    The replay of `engine.drawing.Drawing`. `capacity_rps` is what the workload's loads are
    multiples of.
    """

    def __init__(
        self,
        server: ReplayServer,
        config: WorkloadConfig,
        classes: ClassTable = DEFAULT_CLASSES,
        held_out: bool = False,
        capacity_of: Callable[[Sequence[Asked]], float] | None = None,
    ) -> None:
        """`held_out` draws the texts that are kept for evaluation in place of those for training.

        `capacity_of` a mix, in requests per second, is that of whoever serves them; None: the
        server's. Raises UserError where the recording has no text for a class of the workload.
        """
        self.server, self.config, self.classes, self.held_out = server, config, classes, held_out
        self._capacity_of = capacity_of or server.capacity_of
        self._source: ArrivalSource | None = None if config.trace is None else config.trace.load()
        self._texts = [self._of_class(name) for name in classes.names]
        shares = class_shares(config, classes, self._source)
        if config.trace is None:
            for c in np.flatnonzero(shares).tolist():
                self._need_texts(c)
        self.asked = self._mix(shares)
        """What an episode asks for on average, by class."""

    @cached_property
    def capacity_rps(self) -> float:
        """Of who serves on the mix, disturbances left out; a sweep where none is known."""
        return self._capacity_of(self.asked)

    def __call__(self, generator: np.random.Generator) -> list[Request]:
        """One episode's requests, which carry their disturbances along.

        The same seed gives the same list bit for bit.
        """
        return self.episode(generator).requests

    def episode(self, generator: np.random.Generator) -> Episode:
        """Requests, true change points, disturbances, and how many requests were clipped."""
        config = self.config
        capacity_rps = self.capacity_rps if counts_in_capacity(config) else math.nan
        arrivals = draw_arrivals(config, self.classes, capacity_rps, generator, self._source)
        disturbances = arrivals.disturbances
        stretches = disturbances.has("prompt_length")
        last = [-1] * len(self._texts)
        requests: list[Request] = []
        clipped = 0
        traced = arrivals.output_tokens
        times_s, classes = arrivals.arrival_s.tolist(), arrivals.slo_class.tolist()
        for c in dict.fromkeys(classes):
            self._need_texts(c)
        counts = np.array([len(texts) for texts in self._texts])
        draws = (
            draw_all(arrivals.slo_class, counts, config.max_tokens, generator)
            if traced is None
            else []
        )
        factors = disturbances.values(arrivals.arrival_s)[:, OUTPUT_LENGTH].tolist()
        for i, (time_s, c, factor) in enumerate(zip(times_s, classes, factors, strict=True)):
            texts = self._texts[c]
            if traced is None:
                chosen, drawn = draws[i]
                at = text_after(last[c], len(texts), chosen)
                # Only a disturbance can ask for more than max_tokens, and it is meant to.
                wanted = length = max(1, round(drawn * factor))
            else:
                wanted = max(1, round(int(traced[i]) * factor))
                length = min(wanted, config.max_tokens)
                count = _long_enough(texts, length)
                # Whose text was last may be too short now: then there is nobody to leave out.
                texts = texts[:count]
                at = next_text(last[c] if last[c] < count else -1, count, generator)
            if stretches:
                stretch = disturbances.value("prompt_length", time_s)
                at = _nearest(texts, stretch * len(texts[at].prompt), at, last[c])
            last[c], text = at, texts[at]
            tokens = min(length, text.tokens)
            clipped += tokens != wanted
            request = RecordedRequest(
                i, c, list(text.prompt), tokens, time_s, text.stop_ids, text=text.number
            )
            if traced is not None:
                request.stop_ids = frozenset()
                request.past_end = 0 < text.ended < tokens
            requests.append(request)
        return Episode(DrawnRequests(requests, disturbances), arrivals, clipped)

    def _mix(self, shares: Floats) -> list[Asked]:
        """What will be asked for, disturbances left out; `shares` [C] are those of the classes.

        A class without a text does not count.
        """
        traced = self._traced_output()
        mix = []
        for c, texts in enumerate(self._texts):
            if texts and shares[c] > 0:
                prompt, output = self._class_lengths(texts)
                output = output if traced is None else float(traced[c])
                mix.append(Asked(self.classes.names[c], float(shares[c]), prompt, output))
        return mix

    def _class_lengths(self, texts: list[Text]) -> tuple[float, float]:
        """Mean prompt tokens, and answer tokens up to the target's own end, of drawn requests."""
        most = self.config.max_tokens
        drawn = np.arange(math.ceil(most / 2), most + 1)
        ends = [min(text.tokens, text.ended) if text.ended > 0 else text.tokens for text in texts]
        outputs = [np.minimum(drawn, end).mean() for end in ends]
        return float(np.mean([len(text.prompt) for text in texts])), float(np.mean(outputs))

    def _traced_output(self) -> Floats | None:
        """[C] mean output tokens of the trace's window as they are served; None: it tells none.

        A class of which it has no request takes the mean over all.
        """
        source = self._source
        if source is None:
            return None
        stretches = source.stretches
        plain = replace(
            self.config,
            load=None,
            rate_rps=None if stretches else 1.0,
            duration_s=math.inf if stretches else LENGTHS_S,
            disturbances=(),
            drawn_disturbances=(),
        )
        seen = draw_arrivals(plain, self.classes, 1.0, np.random.default_rng(0), source)
        if seen.output_tokens is None or len(seen.output_tokens) == 0:
            return None
        longest = np.array([texts[0].tokens if texts else 2**62 for texts in self._texts])
        served = np.minimum(seen.output_tokens, self.config.max_tokens)
        served = np.minimum(served, longest[seen.slo_class])
        counts = np.bincount(seen.slo_class, minlength=len(self._texts))
        sums = np.bincount(seen.slo_class, served, len(self._texts))
        return np.where(counts > 0, sums / np.maximum(counts, 1), served.mean())

    def _of_class(self, name: str) -> list[Text]:
        """The class's texts with prompts that the workload and the server allow, longest first."""
        config, context = self.config, self.server.settings.context_tokens
        texts = [recorded_text(self.server.recording, i) for i in self._indices(name)]
        fitting = [
            text._replace(tokens=min(text.tokens, context - len(text.prompt)))
            for text in texts
            if len(text.prompt) <= config.prompt_tokens
            and len(text.prompt) + min(config.max_tokens, text.tokens) <= context
        ]
        return sorted(fitting, key=lambda text: -text.tokens)

    def _indices(self, name: str) -> list[int]:
        recording, names = self.server.recording, self.server.manifest.classes
        if name not in names:
            return []
        of_class = recording.text_class == names.index(name)
        return np.flatnonzero(of_class & (recording.held_out == self.held_out)).tolist()

    def _need_texts(self, c: int) -> None:
        """Raise UserError where the class with index c has no text to draw."""
        if self._texts[c]:
            return
        config, name = self.config, self.classes.names[c]
        kind = "held-out" if self.held_out else "training"
        if count := len(self._indices(name)):
            raise UserError(
                f"workload {config.name!r}: none of the {count} recorded {kind} texts of the class "
                f"{name!r} has a prompt of at most {config.prompt_tokens} tokens that fits, with "
                f"max_tokens of {config.max_tokens}, in the context of "
                f"{self.server.settings.context_tokens}; raise prompt_tokens or lower max_tokens"
            )
        raise UserError(
            f"workload {config.name!r}: the recording holds no {kind} text of the class {name!r} "
            f"(its classes: {', '.join(self.server.manifest.classes)}); mix without it, or record "
            "some with `python record.py`"
        )


def _long_enough(texts: list[Text], tokens: int) -> int:
    """How many of `texts`, longest first, are recorded so far; else how many are the longest."""
    least = min(tokens, texts[0].tokens)
    return sum(text.tokens >= least for text in texts)


def _nearest(texts: list[Text], tokens: float, drawn: int, last: int) -> int:
    """The text whose prompt comes nearest to so many tokens; the drawn one where none is nearer.

    The last one is left out where there are others, as in drawing.
    """

    def off(i: int) -> tuple[bool, float, bool]:
        return i == last, abs(len(texts[i].prompt) - tokens), i != drawn

    return min(range(len(texts)), key=off)


def recorded_text(recording: Recording, index: int) -> Text:
    """The text with that index."""
    start, end = recording.first_token[index : index + 2].tolist()
    first_output = start + int(recording.prompt_tokens[index])
    ended = int(recording.ended[index])
    stop_ids = frozenset({int(recording.tokens[first_output + ended - 1])} if ended > 0 else ())
    prompt = recording.tokens[start:first_output].tolist()
    return Text(index, prompt, end - first_output, stop_ids, ended)
