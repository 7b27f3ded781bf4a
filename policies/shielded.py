"""A shield round a controller: no illegal plan leaves it, and others act where it fails.

The fallbacks stand in an order, by default an analytic controller, a fixed chain, no speculation;
behind the last of them there is no speculation in any case. Who acts gives way to the next for

- `nan`: a plan that holds something else than finite numbers;
- `error`: an exception, or a plan or an answer of `extend` or `select` of the wrong shape;
- `late`: more than `late_s` seconds of wall time for `plan`, `extend` and `select` of a decision,
  `late_times` times in a row. The time is lost by then, so those plans are carried out and the next
  decision is another's;
- `novel`: a view unlike those that it was made for, where somebody can tell (`policies.novelty`);
- `outcome`: the SLO ledger worsens under it (`policies.outcome_guard`).

The last two are asked of the shielded controller only. It is tried again after `dwell` decisions,
or later if the view is still novel; after twice as many each time that it fails again before it has
acted for as long, up to 32 times as many. After `outcome` it returns once the ledger has recovered,
or once the fallback has turned out to be no better: then the load was at fault.

Plans are clipped to the engine's limits, and margins of a lossless controller to 1. Told of an
outcome is who acted. `late_s` is off by default: wall time differs from run to run, so that an
episode on replay could not be repeated. The scheme is research/rl_toolkits.md §3.2's. Not in it are
a limit on how fast plans change, and a record of each decision.

Who serves makes controllers by `for_serving`, where an exported one is never without a shield.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, cast

import numpy as np

from engine.errors import UserError
from engine.limits import clip_plan, mask_of
from engine.protocol import Bools, Controller, Limits, Outcome, Plan, View, uniform_plan
from policies.delegate import Delegate, delegating
from policies.novelty import novelty_of
from policies.outcome_guard import OutcomeGuard
from policies.parameters import check_whole
from policies.registry import exported_folder, make
from policies.spelling import spelled

LOG = logging.getLogger("draftgym.shield")
REASONS = ("nan", "late", "novel", "outcome", "error")
FALLBACKS = ("turbospec(interval=4)", "chain(2)", "autoregressive")
LATE_S, LATE_TIMES = 0.002, 3  # in serving
LONGEST = 32  # dwells that a controller is kept waiting at most


class NotFinite(ValueError):
    """A plan holds something else than finite numbers."""


class Shielded(Delegate):
    """A shielded controller; see `shielded`, which makes one."""

    def __init__(
        self,
        controller: Controller,
        fallbacks: Sequence[Controller] = (),
        late_s: float | None = None,
        dwell: int = 32,
        window: int = 64,
        margin: float = 0.1,
        expected: float | None = None,
        late_times: int = 1,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """What `shielded` takes, the fallbacks as controllers; `clock` times decisions."""
        super().__init__(controller)
        if late_s is not None and not late_s > 0:
            raise UserError(f"shielded: late_s is {late_s!r}; expected seconds above 0, or None")
        if type(dwell) is not int or dwell < 1:
            raise UserError(f"shielded: dwell is {dwell!r}; expected a whole number above 0")
        check_whole("shielded", 1, late_times=late_times)
        self.levels = (controller, *fallbacks)
        self.lossless = all(c.lossless for c in self.levels)
        self.needs_divergence = any(c.needs_divergence for c in self.levels)
        self.late_s, self.late_times, self.dwell = late_s, late_times, dwell
        self._clock = clock
        self.guard = OutcomeGuard(window, margin, expected)
        self._begin()

    def _begin(self) -> None:
        self.fallbacks = dict.fromkeys(REASONS, 0)
        """By reason, how often somebody had to give way since the last `reset`."""
        self.clipped = 0
        """Plan entries outside the limits."""
        self.level = 0
        """Who acts: 0 the controller, 1 the first fallback; the number of levels: nobody."""
        self._novel = novelty_of(self.controller)
        self._reason, self._wait = "", self.dwell
        self._stood_in = self._clean = 0
        """Decisions since the last change: of fallbacks, and of the controller itself."""
        self._planned = 0  # the level whose plan is carried out
        self._late = 0  # decisions in a row
        self._share_at_trip = self._spent_s = 0.0
        self._bound: Bools | None = None  # [S] decode under an objective
        self._told: set[str] = set()

    def reset(self, limits: Limits) -> None:
        """A new episode begins. What a controller raises here is no fault of an episode: passed on.

        The counts start again.
        """
        self._begin()
        self.guard.reset()
        for controller in self.levels:
            controller.reset(limits)

    def plan(self, view: View) -> Plan:
        """The plan of the first that can be trusted, within the limits."""
        self._bound = view.active & np.isfinite(view.tpot_objective_s)
        self._spent_s = 0.0
        self._judge(view)
        while self.level < len(self.levels):
            controller = self.levels[self.level]
            if controller.needs_profile and view.pricing is None:
                self.level += 1  # a fallback that cannot work here; of the first, the engine knows
                continue
            begun = self._clock()
            try:
                plan, outside = checked(controller.plan(view), view, controller.lossless)
            except Exception as error:  # whatever it raises, somebody else decides
                self._give_way("nan" if isinstance(error, NotFinite) else "error", error)
                continue
            self._spent_s += self._clock() - begun
            self.clipped += outside
            self._stood_in += self.level > 0
            self._planned = self.level
            return plan
        self._stood_in += 1
        self._planned = self.level
        return uniform_plan(view.limits, 0, 1, 0)

    def pass_on(self, method: str, *arguments: Any) -> Any:
        """Who acts answers `extend` or `select`; None, the engine's own way, where that fails."""
        if self.level == len(self.levels) or self.level != self._planned:
            return None
        view, candidates = arguments[0], arguments[-1]
        shape = view.active.shape if method == "extend" else candidates.parent.shape
        begun = self._clock()
        try:
            answer = masked_answer(self.levels[self.level], method, arguments, shape)
        except Exception as error:  # as for a plan
            self._give_way("error", error)
            return None
        self._spent_s += self._clock() - begun
        return answer

    def observe(self, outcome: Outcome) -> None:
        """Who acted is told and judged."""
        if self._bound is None or self.level != self._planned:
            return  # it has given way in between, and nobody's plan was carried out as it was meant
        counted = outcome.ran & self._bound
        self.guard.note(
            int(counted.sum()),
            int(outcome.accepted_length[counted].sum()),
            int(outcome.valid_tokens[counted].sum()),
        )
        if self.level == len(self.levels):
            return
        try:
            self.levels[self.level].observe(outcome)
        except Exception as error:  # as for a plan
            self._give_way("error", error)
            return
        is_late = self.late_s is not None and self._spent_s > self.late_s
        self._late = self._late + 1 if is_late else 0
        if self._late >= self.late_times:
            self._give_way("late", f"its decision took {self._spent_s:.6f} s")
        elif self.level == 0 and self.guard.is_worse():
            self._share_at_trip = self.guard.latest_share
            self._give_way("outcome", f"{self.guard.share:.0%} of its tokens are in time")
        elif self.level == 0:
            self._clean += 1
            self.guard.learn()

    def _give_way(self, reason: str, what: object) -> None:
        """The next one acts."""
        told = f"{self.levels[self.level].name} gives way ({reason})"
        if told not in self._told:
            self._told.add(told)
            LOG.warning("%s: %s", told, what)
        self.fallbacks[reason] += 1
        if self.level == 0:
            again = self.fallbacks_so_far > 1 and self._clean < self._wait
            self._wait = min(2 * self._wait, LONGEST * self.dwell) if again else self.dwell
            self._reason = reason
        self._clean = self._stood_in = self._late = 0
        self.level += 1
        self.guard.forget()

    @property
    def fallbacks_so_far(self) -> int:
        """For all reasons together."""
        return sum(self.fallbacks.values())

    def _judge(self, view: View) -> None:
        """Whether the controller is tried again, or has to give way before it is asked."""
        try:
            is_novel = self._novel is not None and self._novel(view)
        except Exception as error:  # the controller's own hook: as for a plan
            if self.level == 0:
                self._give_way("error", error)
            return
        self._consider_return(is_novel)
        if self.level == 0 and is_novel:
            self._give_way("novel", "the view is unlike those that it was made for")

    def _consider_return(self, is_novel: bool) -> None:
        """Back to the controller, once its time has come."""
        if self.level == 0 or self._stood_in < self._wait:
            return
        if self._reason == "novel" and is_novel:
            return
        guard = self.guard
        if self._reason == "outcome" and not guard.has_recovered():
            if guard.share > self._share_at_trip:
                return  # better than the controller, not yet well
            guard.accept()
        self.level = self._clean = 0
        guard.forget()


def shielded(
    controller: Controller,
    fallbacks: Sequence[str] | str = FALLBACKS,
    late_s: float | None = None,
    dwell: int = 32,
    window: int = 64,
    margin: float = 0.1,
    expected: float | None = None,
    late_times: int = 1,
) -> Shielded:
    """`controller` in a shield.

    fallbacks: who acts where it fails, by name, in order; late_s: wall time that a decision may
    take, late_times: decisions in a row that have to take longer; dwell: decisions that a fallback
    acts at least. window, margin and expected are those of `policies.outcome_guard`: iterations,
    and shares of tokens in time. Raises UserError.
    """
    specs = (fallbacks,) if isinstance(fallbacks, str) else tuple(fallbacks)
    if not all(isinstance(spec, str) for spec in specs):
        raise UserError(f"shielded: fallbacks are {fallbacks!r}; expected names of controllers")
    others = tuple(make(spec) for spec in specs)
    kind = delegating(Shielded, controller, *others)
    made = kind(controller, others, late_s, dwell, window, margin, expected, late_times)
    given = {
        "fallbacks": specs,
        "late_s": late_s,
        "dwell": dwell,
        "window": window,
        "margin": margin,
        "expected": expected,
        "late_times": late_times,
    }
    made.name = f"{spelled('shielded', cast(type, shielded), **given)}:{controller.name}"
    return made


def for_serving(spec: str, late_s: float = LATE_S) -> Controller:
    """The controller that `spec` names, as it is put before users.

    An exported one stands in a shield with a watchdog, unless `spec` gives it one of its own; all
    others have rules that somebody can read. Raises UserError.
    """
    controller = make(spec)
    if exported_folder(spec) is None or _is_shielded(controller):
        return controller
    return shielded(controller, late_s=late_s, late_times=LATE_TIMES)


def _is_shielded(controller: Controller) -> bool:
    while isinstance(controller, Delegate):
        if isinstance(controller, Shielded):
            return True
        controller = controller.controller
    return False


def checked(plan: Plan, view: View, lossless: bool) -> tuple[Plan, int]:
    """The plan within the limits, and how many entries lay outside.

    Raises NotFinite, and UserError for arrays of another shape or margins of 0 or less.
    """
    active = view.active
    fields: dict[str, Any] = {}
    for name, idle in (("depth", 0), ("width", 1), ("nodes", 0), ("margin", 1)):
        values = np.asarray(getattr(plan, name))
        if values.shape == active.shape:  # else `clip_plan` says so
            if not np.isfinite(values[active]).all():
                raise NotFinite(f"its plan's {name} is {values[active].tolist()}")
            values = np.where(active, values, idle)
        fields[name] = values
    for name in ("node_budget", "prefill_tokens", "max_running", "budget_steps"):
        value = getattr(plan, name)
        if value is not None and not np.isfinite(value):
            raise NotFinite(f"its plan's {name} is {value}")
    inside, outside = clip_plan(plan._replace(**fields), view.limits, active, view.remaining_tokens)
    margin = np.asarray(inside.margin, float)
    if lossless:
        outside += int((margin < 1.0).sum())
        margin = np.maximum(margin, 1.0)
    most = view.limits.slots * view.limits.max_nodes
    budget = min(max(int(plan.node_budget), 0), most)
    return inside._replace(margin=margin, node_budget=budget), outside


def masked_answer(
    controller: Controller, method: str, arguments: tuple[Any, ...], shape: tuple[int, ...]
) -> Bools | None:
    """The controller's answer, None or a mask of `shape`; raises UserError for another."""
    answer = getattr(controller, method)(*arguments)
    return None if answer is None else mask_of(method, answer, shape)
