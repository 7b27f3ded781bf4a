"""DSDE: chains whose length follows how steadily the drafter has been missing the target.

Yang et al. 2025 (arXiv 2509.01083; samsungsds-research-paper/DSDE, `KLScheduler` in
vllm/spec_decode/dynamic_scheduler.py; research/slo_serving.md §3.9). For a request whose divergence
from the target, in nats, was last KLD, and over the last 30 and the last 10 of them has the
variances V₃₀ and V₁₀, weighted by 0.85^age:

    SF = exp(2 · KLD) − 1,  WVIR = V₁₀ / V₃₀
    SL = (1 − SF · WVIR) (SL_max − SL_min) + SL_min, SL_min = 2 where SF · WVIR > 1; rounded up
    cap = mean SL over the batch, rounded up: nobody drafts longer

    SL_max = most drafts accepted in a step of its calibration · (1 + mean KLD / largest KLD then)

As in the authors' code: a request calibrates itself until 30 of its tokens were drafted, and its
chains double whenever all of one is accepted; before 30 divergences are known V₁₀ is taken over
their latest third, a ratio over fewer than two is 0, and one over a variance below 1e-6 is 20. The
code differs from the paper in decay (0.9) and in half the stretch of SL_max (`stretch=0.5`); the
paper's are the defaults. It divides KLD by the temperature, which a view does not tell: not here.

*Ours*: the engine tells the divergence at a request's root, one an iteration, where the authors
have one for each drafted token, so that KLD is not a mean and windows count iterations. A request
begins with the batch's last cap, or 4 where there is none. A drafter that cannot tell its
divergence leaves chains at SL_max.

Probe rule after depth 0: none is needed, SL_min keeps everybody drafting. An iteration in which the
engine could not draft tells nothing and changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from engine.errors import UserError
from engine.kernels.variance_ratio import variance_ratio
from engine.protocol import Controller, Floats, Ints, Limits, Outcome, Plan, View, uniform_plan
from policies.parameters import check_whole
from policies.per_request import PerRequest
from policies.spelling import spelled

SHORT, LONG, DECAY, STEEPNESS = 10, 30, 0.85, 2.0
SHORTEST, FIRST, CALIBRATION, STRETCH = 2, 4, 30, 1.0


def scale(divergence: Floats, steepness: float) -> Floats:
    """SF; what no floating-point number holds is as good as very much."""
    return np.expm1(np.minimum(steepness * divergence, 700.0))


def lengths(instability: Floats, shortest: Ints, longest: Ints) -> Ints:
    """SL, rounded up, from SF · WVIR and the two bounds."""
    kept = np.minimum(np.maximum(1.0 - instability, 0.0), 1.0)
    return shortest + np.ceil(kept * (longest - shortest)).astype(np.int64)


@dataclass
class Course:
    """What is known of a request."""

    steps: int
    """Draft steps while it calibrates itself."""
    history: Floats
    """[N] divergences in nats, written round and round."""
    count: int = 0
    """Divergences written."""
    last: float = 0.0
    """The newest of them."""
    drafted: int = 0
    """Tokens drafted in the calibration."""
    most_accepted: int = 0
    seen: list[float] = field(default_factory=list)
    """Divergences of the calibration."""
    longest: int | None = None
    """SL_max, once the calibration is over."""

    def note(self, divergence: float) -> None:
        """One more divergence; NaN where there was none."""
        if not math.isnan(divergence):
            self.history[self.count % len(self.history)] = self.last = divergence
            self.count += 1

    def calibrate(self, divergence: float, drafted: int, accepted: int, most_steps: int) -> None:
        """A step of the calibration: chains double as long as all of one is accepted."""
        self.drafted += drafted
        self.most_accepted = max(self.most_accepted, accepted)
        if not math.isnan(divergence):
            self.seen.append(divergence)
        if accepted >= self.steps:
            self.steps = min(2 * self.steps, most_steps)

    def bound(self, stretch: float) -> int:
        """SL_max of the calibration."""
        largest = max(self.seen, default=0.0)
        share = sum(self.seen) / len(self.seen) / largest if largest > 0 else 0.0
        return round(self.most_accepted * (1.0 + stretch * share))


class Dsde(Controller):
    """A chain for each request, as long as its divergence is steady, and a cap for all."""

    needs_divergence = True

    def __init__(
        self,
        shortest: int = SHORTEST,
        first: int = FIRST,
        calibration: int = CALIBRATION,
        stretch: float = STRETCH,
        steepness: float = STEEPNESS,
        decay: float = DECAY,
        short: int = SHORT,
        long: int = LONG,
        capped: bool = True,
    ) -> None:
        """SL_min, first draft steps, drafted tokens of a calibration; factors and windows as above.

        `capped` False leaves out the cap over the batch. Raises UserError.
        """
        self.name = spelled(
            "dsde", Dsde, shortest=shortest, first=first, calibration=calibration, stretch=stretch,
            steepness=steepness, decay=decay, short=short, long=long, capped=capped,
        )  # fmt: skip
        check_whole(
            self.name, 1, shortest=shortest, first=first, calibration=calibration, short=short
        )
        if type(long) is not int or long < max(short, 2):
            raise UserError(
                f"{self.name}: long is {long!r}; expected a window of at least short and 2"
            )
        for label, factor in (("stretch", stretch), ("steepness", steepness)):
            if not 0.0 <= factor < float("inf"):
                raise UserError(f"{self.name}: {label} is {factor!r}; expected a number from 0 on")
        if not 0.0 < decay <= 1.0:
            raise UserError(f"{self.name}: decay is {decay!r}; expected a number above 0 up to 1")
        self.shortest, self.first, self.calibration = shortest, first, calibration
        self.stretch, self.steepness, self.decay = stretch, steepness, decay
        self.short, self.long, self.capped = short, long, capped
        self.reset(Limits())

    def reset(self, limits: Limits) -> None:
        """No request is known."""
        self.requests: PerRequest[Course] = PerRequest()
        self.limits = limits
        self.last_cap = self.first
        # The first call loads the kernel, which must not be charged to a decision.
        variance_ratio(np.zeros((1, self.long)), np.zeros(1, np.int64), self.short, self.decay)

    def plan(self, view: View) -> Plan:
        """A chain for each request that decodes."""
        self.limits = view.limits
        most = min(view.limits.max_depth, view.limits.max_nodes)
        shortest = min(self.shortest, most)
        begin = min(max(self.last_cap, shortest), most)
        courses = self.requests.recall(view, lambda: Course(begin, np.zeros(self.long)))
        depth = np.full(view.limits.slots, shortest)
        depth[list(courses)] = [course.steps for course in courses.values()]
        settled = {slot: course for slot, course in courses.items() if course.longest is not None}
        if settled:
            slots = list(settled)
            steps = self._steps(list(settled.values()), shortest, most)
            if self.capped:
                self.last_cap = math.ceil(steps.mean())
                steps = np.minimum(steps, self.last_cap)
            depth[slots] = steps
        plan = uniform_plan(view.limits, 0, width=1, nodes=0)
        return plan._replace(depth=depth, nodes=depth.copy())

    def _steps(self, courses: list[Course], shortest: int, most: int) -> Ints:
        """SL of requests that have calibrated themselves."""
        history = np.concatenate([course.history for course in courses]).reshape(-1, self.long)
        count = np.array([course.count for course in courses], np.int64)
        longest = np.array([course.longest or 0 for course in courses], np.int64)
        longest = np.minimum(np.maximum(longest, shortest), most)
        factor = scale(np.array([course.last for course in courses]), self.steepness)
        ratio = variance_ratio(history, count, self.short, self.decay)
        return lengths(factor * ratio, np.full(len(courses), shortest), longest)

    def observe(self, outcome: Outcome) -> None:
        """Divergences go into the histories, and calibrations come to their end."""
        proposed, accepted = outcome.proposed.sum(1).tolist(), outcome.accepted.sum(1).tolist()
        nats = outcome.divergence
        told = [math.nan] * len(proposed) if nats is None else nats.tolist()
        most = min(self.limits.max_depth, self.limits.max_nodes)
        for slot, course in self.requests.by_slot.items():
            if proposed[slot] == 0:
                continue
            course.note(told[slot])
            if course.longest is None:
                course.calibrate(told[slot], proposed[slot], accepted[slot], most)
                if course.drafted >= self.calibration:
                    course.longest = course.bound(self.stretch)
        self.requests.forget(outcome)
