"""What an environment shows, at three sizes; `observation=` of `gymnasium.make` names one.

- `aggregate`: a vector of fixed size, by class and engine-wide (`policies.features`);
- `per-request`: that vector as `engine`, a row for each slot as `requests`, and who is there as
  `mask` (`policies.request_features`);
- `learning-to-draft`: path scores and position of a batch of one (`policies.path_features`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args

import numpy as np
from gymnasium import spaces

from engine.errors import UserError
from engine.protocol import Candidates, Limits, View
from policies.actions import Actions, ActionTable, PlanByClass
from policies.features import Feature, Observation, bounds, feature_table, observe, require_finite
from policies.path_features import observe_paths, path_table, trees_of
from policies.request_features import (
    observe_requests,
    request_table,
    require_finite_rows,
    row_bounds,
)
from policies.shifts import Shifts

if TYPE_CHECKING:
    from engine.loop import Engine

Size = Literal["aggregate", "per-request", "learning-to-draft"]


class Observer(Protocol):
    """Observes one environment's engine, decision by decision."""

    size: ClassVar[Size]
    features: tuple[Feature, ...]
    space: spaces.Space[Any]

    def reset(self) -> None:
        """An episode begins."""
        ...

    def observe(self, engine: Engine, view: View, previous: PlanByClass) -> Any:
        """What the coming decision is based on, in fresh arrays; the same again at one moment.

        `previous` is the plan by class in force. Raises UserError for what is not a number.
        """
        ...


class Aggregate:
    """The features by class and of the engine, float32 [F]."""

    size: ClassVar[Size] = "aggregate"

    def __init__(self, class_names: Sequence[str]) -> None:
        self.features = feature_table(class_names)
        self.space: spaces.Space[Any] = vector_space(self.features)
        self._classes = len(class_names)
        self.reset()

    def reset(self) -> None:
        """Nothing was seen."""
        self._shifts = Shifts(self._classes)

    def observe(self, engine: Engine, view: View, previous: PlanByClass) -> Any:
        """A fresh vector."""
        observation = observe(view, previous, self._shifts)
        require_finite(observation, self.features)
        return observation


class PerRequest(Aggregate):
    """The same, and a row for each slot."""

    size: ClassVar[Size] = "per-request"

    def __init__(self, class_names: Sequence[str], slots: int) -> None:
        super().__init__(class_names)
        self.request_features = request_table(class_names)
        self.space = request_space(self.features, self.request_features, slots)

    def observe(self, engine: Engine, view: View, previous: PlanByClass) -> Any:
        """`engine` [F], `requests` [S, K] and `mask` [S], fresh."""
        of_engine = super().observe(engine, view, previous)
        rows, mask = observe_requests(view)
        require_finite_rows(rows, self.request_features)
        return {"engine": of_engine, "requests": rows, "mask": mask}


class LearningToDraft:
    """Path scores and position of the only slot, float32 [N + 58]."""

    size: ClassVar[Size] = "learning-to-draft"

    def __init__(self, limits: Limits, actions: Actions) -> None:
        """Paths of the largest trees that `actions` can ask for, or else of the engine's `limits`.

        Raises UserError for more slots than one.
        """
        if limits.slots != 1:
            raise UserError(
                f"the observation learning-to-draft is of one request, and the engine has "
                f"{limits.slots} slots; make the environment with slots=1"
            )
        self._layout = trees_of(actions) if isinstance(actions, ActionTable) else limits
        self.features = path_table(self._layout)
        self.space: spaces.Space[Any] = vector_space(self.features)
        self.reset()

    def reset(self) -> None:
        """Nothing was drafted."""
        self._seen_s = -1.0
        self._latest: Observation | None = None

    def observe(self, engine: Engine, view: View, previous: PlanByClass) -> Any:
        """A fresh vector. What it saw at this very moment before, it does not look for again."""
        if self._latest is None or view.clock_s != self._seen_s:
            self._seen_s = view.clock_s
            self._latest = observe_paths(
                _tree_of(engine, view), 0, int(view.context_tokens[0]), self._layout
            )
            require_finite(self._latest, self.features)
        return self._latest.copy()


def _tree_of(engine: Engine, view: View) -> Candidates | None:
    """The tree drafted last for the request that decodes; None where it has none yet."""
    from engine.drafting import candidates

    return candidates(engine) if view.active[0] and view.tokens_out[0] > 0 else None


def observer(size: str, actions: Actions, limits: Callable[[], Limits]) -> Observer:
    """The observer of that name, under a table of actions. Raises UserError where there is none.

    `limits` are the engine's, asked for where the observation's shape hangs on them.
    """
    require_size(size)
    if size == "per-request":
        return PerRequest(actions.class_names, limits().slots)
    if size == "learning-to-draft":
        return LearningToDraft(limits(), actions)
    return Aggregate(actions.class_names)


def require_size(size: str) -> None:
    """Raise UserError unless it is one of the three."""
    if size not in get_args(Size):
        raise UserError(f"observation is {size!r}; expected one of {', '.join(get_args(Size))}")


def of_engine(observation: Any) -> Observation:
    """The features by class and of the engine in an observation, of one environment or many."""
    found: Observation = observation["engine"] if isinstance(observation, dict) else observation
    return found


def row_of(observations: Any, replica: int) -> Any:
    """One environment's observation among those of many; a copy."""
    if isinstance(observations, dict):
        return {name: rows[replica].copy() for name, rows in observations.items()}
    return observations[replica].copy()


def vector_space(features: Sequence[Feature]) -> spaces.Box:
    """Of one number for each feature."""
    low, high = bounds(features)
    return spaces.Box(low, high, dtype=np.float32)


def request_space(
    features: Sequence[Feature], request_features: Sequence[Feature], slots: int
) -> spaces.Dict:
    """Of the engine's features, and a row of requests' features for each slot."""
    low, high = row_bounds(request_features, slots)
    return spaces.Dict(
        {
            "engine": vector_space(features),
            "requests": spaces.Box(low, high, dtype=np.float32),
            "mask": spaces.Box(0.0, 1.0, (slots,), dtype=np.float32),
        }
    )
