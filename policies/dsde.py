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
from typing import ClassVar

import numpy as np

from engine.errors import UserError
from engine.kernels.steady_chains import Courses, chains, note
from engine.protocol import (
    Bools,
    Controller,
    Floats,
    Ints,
    Limits,
    Outcome,
    Plan,
    View,
    uniform_plan,
)
from policies.parameters import check_whole
from policies.per_request import PerRequest
from policies.spelling import spelled
from policies.tunable import Declared, Tunable

SHORT, LONG, DECAY, STEEPNESS = 10, 30, 0.85, 2.0
SHORTEST, FIRST, CALIBRATION, STRETCH = 2, 4, 30, 1.0


def nobody(slots: int, window: int) -> Courses:
    """Room for the courses of so many slots, with divergences of a window in each."""
    whole, real = (lambda: np.zeros(slots, np.int64)), (lambda: np.zeros(slots))
    return Courses(
        history=np.zeros((slots, window)),
        known=whole(),
        last=real(),
        steps=whole(),
        drafted=whole(),
        most_accepted=whole(),
        seen=whole(),
        total=real(),
        largest=real(),
        longest=whole(),
    )


class Dsde(Controller):
    """A chain for each request, as long as its divergence is steady, and a cap for all."""

    needs_divergence = True

    TUNABLE: ClassVar[Declared] = {
        "shortest": Tunable(1, 4, whole=True),
        "first": Tunable(1, 8, whole=True),
        "calibration": Tunable(5, 120, log=True, whole=True),
        "stretch": Tunable(0.0, 2.0),
        "steepness": Tunable(0.1, 10.0, log=True),
        "decay": Tunable(0.5, 1.0),
        "short": Tunable(2, 15, whole=True),
        "long": Tunable(16, 60, whole=True),
    }

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
        self.requests = PerRequest(nobody(limits.slots, self.long))
        self.limits = limits
        self.last_cap = self.first
        # The first calls load the kernels, which must not be charged to a decision.
        none = np.zeros((limits.slots, limits.max_depth), np.bool_)
        self._note(none, none, np.zeros(limits.slots))
        self._chains(self.requests.rows, 1, 1, np.zeros(limits.slots, np.int64))

    def plan(self, view: View) -> Plan:
        """A chain for each request that decodes."""
        self.limits = view.limits
        most = min(view.limits.max_depth, view.limits.max_nodes)
        shortest = min(self.shortest, most)
        begin = min(max(self.last_cap, shortest), most)
        courses = self.requests.recall(view, (0.0, 0, 0.0, begin, 0, 0, 0, 0.0, 0.0, -1))
        plan = uniform_plan(view.limits, shortest, width=1, nodes=0)
        settled, total = self._chains(courses, shortest, most, plan.depth)
        if settled and self.capped:
            self.last_cap = math.ceil(total / settled)
            done = self.requests.here() & (courses.longest >= 0)
            np.minimum(plan.depth, self.last_cap, out=plan.depth, where=done)
        return plan._replace(nodes=plan.depth.copy())

    def _chains(self, courses: Courses, shortest: int, most: int, depth: Ints) -> tuple[int, int]:
        """SL of everybody, not capped, into `depth` [S]; how many are settled, and their sum."""
        here = self.requests.here()
        return chains(here, courses, shortest, most, self.steepness, self.short, self.decay, depth)

    def observe(self, outcome: Outcome) -> None:
        """Divergences go into the histories, and calibrations come to their end."""
        nats = outcome.divergence
        told = np.full(len(outcome.ran), math.nan) if nats is None else nats
        self._note(outcome.proposed, outcome.accepted, told)
        self.requests.forget(outcome)

    def _note(self, proposed: Bools, accepted: Bools, divergence: Floats) -> None:
        here, most = self.requests.here(), min(self.limits.max_depth, self.limits.max_nodes)
        note(
            here, proposed, accepted, divergence, self.calibration, self.stretch, most,
            self.requests.rows,
        )  # fmt: skip
