"""Behaviour cloning as a warm start: what a controller plans on replay, as a policy would see it.

The controller serves arrivals of training as it always does, with its own trees and its own choice
of nodes. At every decision that the policy would take, the observation is recorded, and the
controller's plan by class: the median over the class's requests, of width and nodes over those
that draft, each in the tier whose logarithm is nearest. `previous` in an observation is the plan
recorded last, which is what a policy that imitates perfectly would have in force.

How a policy is fitted to such a recording is `train.cloning`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from engine.drawing import Draw
from engine.errors import UserError
from engine.protocol import Bools, Controller, Floats, Ints, Limits, Plan, View
from policies.action_codec import TierCodec
from policies.action_mask import ActionMask
from policies.actions import DIMENSIONS, ActionTable
from policies.delegate import Delegate, delegating
from policies.features import Observation, feature_table, observe, require_finite
from policies.registry import make
from policies.shifts import Shifts
from train.callbacks import JsonLines
from train.cloning import Agreement, clone, fit_critic

if TYPE_CHECKING:
    from engine.server import Server
    from train.algorithms.base import Learner
    from train.config import TrainConfig
    from train.run_folder import RunFolder

ARRIVALS, FIT = 0x1417A7E, 0xF17  # set the generators of imitation apart from those of training
RESULT = "imitation.json"


class Recording(NamedTuple):
    """N decisions of a controller, episode by episode."""

    observation: Observation  # [N, F]
    tiers: Ints  # [N, C · 4] indices into the action table
    told: Bools  # [N, C] classes of which somebody decoded; what is said of others means nothing
    legal: Bools  # [N, Σ nvec] tiers of use
    begins: Bools  # [N] an episode begins


def imitate(
    model: Learner,
    server: Server,
    draw: Draw,
    config: TrainConfig,
    run: RunFolder,
    say: Callable[[str], None],
    scale: float,
) -> Agreement:
    """Fit a new model to `--imitate`'s controller, and its critic to what it then earns.

    Says and writes to `run` how often it agrees with the controller on decisions held out. `scale`
    is that of rewards. The same seed gives the same model. Raises UserError; which policies cannot
    imitate, `train.config.check_imitation` has said.
    """
    spec = config.learning.imitate
    assert spec is not None
    table = model.codec.table
    assert isinstance(model.codec, TierCodec) and isinstance(table, ActionTable), "it was checked"
    recording = record(
        server,
        draw,
        make(spec),
        table,
        config.learning.decide_every,
        config.learning.imitate_decisions,
        np.random.default_rng((config.seed, ARRIVALS)),
    )
    rng = np.random.default_rng((config.seed, FIT))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a network gains nothing, and sums are in one order
    try:
        found = clone(model, recording, rng)
        fit_critic(model, rng, scale)
    finally:
        torch.set_num_threads(threads)
    model.imitated = spec
    shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in found.by_class.items())
    say(
        f"imitates {spec}: the same plan on {found.decisions:,} decisions held out in {shares} "
        f"(untrained: {100 * found.before:.0f} % of all)"
    )
    run.write_json(RESULT, {"controller": spec, **asdict(found)})
    figures = {f"imitation/agreement/{name}": share for name, share in found.by_class.items()}
    JsonLines(run.metrics).write({**figures, "imitation/loss": found.loss}, {})
    return found


def record(
    server: Server,
    draw: Draw,
    controller: Controller,
    table: ActionTable,
    decide_every: int,
    decisions: int,
    rng: np.random.Generator,
) -> Recording:
    """So many decisions of the controller, on episodes drawn by `rng`. Raises UserError."""
    watched = delegating(_Watched, controller)(controller)
    watched.begin(table, decide_every)
    while len(watched.tiers) < decisions:
        before = len(watched.tiers)
        engine = server.engine(draw(rng))
        if engine.class_names != table.class_names:
            raise UserError(
                f"the engine serves the classes {', '.join(engine.class_names)}, the action table "
                f"is for {', '.join(table.class_names)}; use one class table for both"
            )
        watched.reset(engine.limits)
        while len(watched.tiers) < decisions and (view := engine.next_decision()) is not None:
            engine.run_iteration(view, watched)
        if len(watched.tiers) == before:
            raise UserError("the workload holds no request to decide for; give it a longer one")
    return watched.recording()


class _Watched(Delegate):
    """A controller whose plans are recorded while it serves."""

    def begin(self, table: ActionTable, decide_every: int) -> None:
        """Record nothing yet."""
        self._table, self._decide_every = table, decide_every
        self._features = feature_table(table.class_names)
        self.tiers: list[Ints] = []
        self._observed: list[Observation] = []
        self._told: list[Bools] = []
        self._begins: list[bool] = []
        self._legal: list[Bools] = []

    def reset(self, limits: Limits) -> None:
        """A new episode begins."""
        super().reset(limits)
        self._previous, self._held = self._table.off(), 0
        self._shifts = Shifts(len(self._table.class_names))
        self._mask = ActionMask(self._table, self._features, limits)
        self._is_first = True

    def plan(self, view: View) -> Plan:
        """As the controller plans; recorded where a decision is due."""
        plan = self.controller.plan(view)
        if self._held == 0:
            observation = observe(view, self._previous, self._shifts)
            require_finite(observation, self._features)
            tiers, told = tiers_of(plan, view, self._table)
            self._observed.append(observation)
            self.tiers.append(tiers)
            self._told.append(told)
            self._legal.append(self._mask.legal(observation))
            self._begins.append(self._is_first)
            self._previous, self._is_first = self._table.decode(tiers), False
        self._held = (self._held + 1) % self._decide_every
        return plan

    def recording(self) -> Recording:
        """All that was recorded."""
        return Recording(
            np.stack(self._observed),
            np.stack(self.tiers),
            np.stack(self._told),
            np.stack(self._legal),
            np.array(self._begins),
        )


def tiers_of(plan: Plan, view: View, table: ActionTable) -> tuple[Ints, Bools]:
    """The plan by class as tier indices [C · 4], and of which classes [C] somebody decodes.

    A class without has the lowest tiers; so has one whose median depth is nearest to 0. No tier
    above the engine's limits is taken, but the lowest.
    """
    classes, limits = len(table.class_names), view.limits
    chosen = np.zeros((classes, len(DIMENSIONS)), np.int64)
    told = np.zeros(classes, np.bool_)
    for c in range(classes):
        own = view.active & (view.slo_class == c)
        if not own.any():
            continue
        told[c] = True
        chosen[c, 3] = np.argmin(np.abs(np.array(table.margins) - np.median(plan.margin[own])))
        chosen[c, 0] = _nearest(table.depths, np.median(plan.depth[own]), limits.max_depth)
        drafting = own & (np.asarray(plan.depth) > 0)
        if chosen[c, 0] > 0:
            chosen[c, 1] = _nearest(table.widths, np.median(plan.width[drafting]), limits.max_width)
            chosen[c, 2] = _nearest(table.nodes, np.median(plan.nodes[drafting]), limits.max_nodes)
    return chosen.ravel(), told


def _nearest(tiers: tuple[int, ...], value: Any, most: int) -> int:
    """Index of the tier nearest to `value` by log1p, so that 3 nodes are rather 4 than 2."""
    allowed: Floats = np.log1p([tier for tier in tiers if tier <= most] or tiers[:1])
    distance: NDArray[Any] = np.abs(allowed - np.log1p(value))
    return int(np.argmin(distance))
