"""What steps cost by their draft steps and verified tokens, from three questions to the profile.

`Pricing.step_s` prices one plan exactly and takes a tenth of a millisecond for a large batch, so
whoever compares tens of plans cannot ask it for each. With a beam of one width for everybody

    seconds = rest + verify(tokens),  and for d draft steps  + first + (d − 1) · next

where `verify` is what `Pricing.verify_s` tells for a whole array at once. `first` is dearer than
`next` by what the drafter has to catch up with. The one thing left out is that the engine's own
work grows a little with the tokens: it is counted as of two nodes a request.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, cast

import numpy as np

from engine.errors import UserError
from engine.protocol import Floats, Ints, Pricing, Tabulated, View, uniform_plan


class StepPrices(NamedTuple):
    """Seconds of a step's parts for the requests of one view, and one beam width."""

    rest_s: float
    """All that is neither drafting nor verification."""
    first_s: float
    """Of the first draft step, with what the drafter catches up with."""
    next_s: float
    """Of each further one."""

    def before_verification_s(self, depth: Ints) -> Floats:
        """All but the verification [n], for any numbers of draft steps [n]."""
        rest_s, first_s, next_s = self
        # Of a handful of numbers, on which NumPy would spend more time.
        return np.array(
            [rest_s + (first_s + (d - 1) * next_s if d > 0 else 0.0) for d in depth.tolist()]
        )


def required_pricing(view: View, name: str) -> Pricing:
    """The view's pricing. Raises UserError where there is none, naming who needs it."""
    if view.pricing is None:
        raise _no_profile(name)
    return view.pricing


def required_tables(view: View, name: str) -> Tabulated:
    """The view's pricing, which can tabulate. Raises UserError as `required_pricing`."""
    kind: type = type(view.pricing)
    if not _tabulates(kind):
        raise _no_profile(name)
    return cast(Tabulated, view.pricing)


@cache
def _tabulates(kind: type) -> bool:
    return issubclass(kind, Tabulated)  # asking a protocol anew, in every iteration, takes long


def _no_profile(name: str) -> UserError:
    return UserError(
        f"{name} needs a hardware profile; measure one with `python -m engine.profile`"
    )


def step_prices(view: View, pricing: Pricing, width: int) -> StepPrices:
    """The parts for beams of `width`, everybody's the same."""
    requests = int(np.count_nonzero(view.active))
    roots_s, pairs_s = pricing.verify_s([requests, 2 * requests]).tolist()
    # With one node kept a request, both verify the same: what differs is drafting.
    none_s, one_s, two_s = (
        pricing.step_s(uniform_plan(view.limits, steps, width, min(steps, 1))) for steps in range(3)
    )
    rest_s = none_s - roots_s
    return StepPrices(rest_s, one_s - pairs_s - rest_s, two_s - one_s)
