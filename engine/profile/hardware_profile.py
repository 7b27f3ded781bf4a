"""A machine's profile: how long its passes take, what they draw, and how well that is known.

The engine predicts steps with it and sizes the node budget; controllers price what they plan. All
times are seconds. NumPy only; measuring and fitting are elsewhere in this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from engine.errors import UserError
from engine.profile import store
from engine.profile.cost_model import PassCost
from engine.profile.machine import Machine, this_machine
from engine.protocol import Floats, Ints

DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_DRAFTER = "eagle3"


@dataclass(frozen=True)
class FitReport:
    """How well a prediction holds on points that the fit never saw; shares of the time."""

    form: str
    """pieces, stairs or both; "sum" for the whole step."""
    points: int
    held_out: int
    error_median: float
    error_p95: float
    noise_median: float
    """How far a repeated step lies from the median of its repeats, the same statistics."""
    noise_p95: float


@dataclass(frozen=True)
class PowerUse:
    """Watts of steps by their verified tokens, both ascending in tokens."""

    tokens: tuple[float, ...]
    watts: tuple[float, ...]
    is_measured: bool
    """False: the machine offers no counter, `engine.telemetry.PowerModel` was asked."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes."""

    weight_bytes: int
    """Read by a one-token pass of the target."""
    kv_bytes_per_token: int
    resident_bytes: int
    """Of the process, with the networks and all caches."""


@dataclass(frozen=True)
class HardwareProfile:
    """What a model's steps cost on a machine. `threads` is what it was measured with."""

    machine: Machine
    model: str
    dtype: str
    drafter: str
    threads: int
    measured_at: str
    verify: PassCost
    draft_first: PassCost
    draft_next: PassCost
    prefill: PassCost
    host: PassCost
    """Admission, view, selection and commit: the engine's own work of a step."""
    most_tokens: int
    """The largest verification that was measured; beyond, the last slope goes on."""
    context_tokens: float
    """Typical context of a request while measuring."""
    fits: dict[str, FitReport]
    power: PowerUse
    memory: MemoryUse

    @classmethod
    def load(
        cls,
        path: Path | None = None,
        model: str = DEFAULT_MODEL,
        dtype: str | None = None,
        drafter: str = DEFAULT_DRAFTER,
        any_machine: bool = False,
    ) -> HardwareProfile:
        """Read a profile: the file at `path`, or this machine's own in the user's cache.

        Without a path, `dtype` None takes the newest of the model's. Raises UserError when there is
        none, when it is of another version, or, unless `any_machine`, of another machine.
        """
        if path is None:
            found = cls.find(model, dtype, drafter)
            if found is None:
                raise UserError(
                    f"no hardware profile of {model}{f' in {dtype}' if dtype else ''} with drafter "
                    f"{drafter} on this machine; measure one with `python -m engine.profile --model"
                    f" {model}`"
                )
            return found
        profile = store.read(path, cls)
        here = this_machine()
        if profile.machine != here and not any_machine:
            raise UserError(
                f"{path} is the profile of another machine ({profile.machine}), this is {here}; "
                f"{store.AGAIN}"
            )
        return profile

    @classmethod
    def find(
        cls, model: str = DEFAULT_MODEL, dtype: str | None = None, drafter: str = DEFAULT_DRAFTER
    ) -> HardwareProfile | None:
        """This machine's profile in the user's cache; None where it was never measured."""
        paths = store.stored_profiles(this_machine(), model, dtype, drafter)
        return cls.load(paths[0]) if paths else None

    def save(self, path: Path | None = None) -> Path:
        """Write to `path`, or to the user's cache; returns where."""
        if path is None:
            path = store.profile_path(self.machine, self.model, self.dtype, self.drafter)
        store.write(path, self)
        return path

    # -- predictions -----------------------------------------------------------------------------

    def verify_s(
        self, tokens: ArrayLike, kv_tokens: ArrayLike = 0.0, requests: ArrayLike = 1
    ) -> Floats:
        """Verification of `tokens` nodes, roots included, over contexts of `kv_tokens` in all."""
        return self.verify(tokens, kv_tokens, requests)

    def draft_s(
        self, step_rows: Sequence[float] | Ints, kv_tokens: float = 0.0, requests: int = 1
    ) -> float:
        """All draft steps of an iteration.

        `step_rows` are the rows that go through the drafter in each. The first step's are committed
        tokens that it has not run yet, at least one a request and more after ordinary steps (the
        price of not having drafted); the others' are the beams of all requests together.
        """
        rows = np.asarray(step_rows, float)
        if rows.size == 0:
            return 0.0
        first = self.draft_first(rows[0], kv_tokens, requests)
        return float(first + self.draft_next(rows[1:], kv_tokens, requests).sum())

    def prefill_s(self, tokens: ArrayLike) -> Floats:
        """A prompt, or a chunk of one, of that many tokens; 0 for none."""
        return np.where(np.asarray(tokens) > 0, self.prefill(tokens), 0.0)

    def step_s(
        self,
        depth: ArrayLike,
        width: ArrayLike,
        nodes: ArrayLike,
        context_tokens: ArrayLike,
        node_budget: int | None = None,
        catch_up_tokens: ArrayLike = 1,
        prefill_tokens: int = 0,
    ) -> float:
        """A whole iteration under a plan, the controller's own time not counted.

        Arrays have one entry a decoding request, as a `Plan` has; `catch_up_tokens` are committed
        tokens that the drafter has not run (see `draft_s`).
        """
        d, w, n, context, behind = np.broadcast_arrays(
            *(np.asarray(a, float) for a in (depth, width, nodes, context_tokens, catch_up_tokens))
        )
        requests = d.size
        drafted = np.where(d > 0, w + np.maximum(d - 1, 0) * w**2, 0)
        kept = float(np.minimum(n, drafted).sum())
        kept = kept if node_budget is None else min(kept, node_budget)
        drafting = (d > 0) & (n > 0)
        steps = int(d[drafting].max(initial=0))
        beams = [float(w[drafting & (d >= step)].sum()) for step in range(2, steps + 1)]
        rows = [float(behind[drafting].sum()), *beams] if steps else []
        kv = float(context.sum())
        draft_s = self.draft_s(rows, float(context[drafting].sum()), int(drafting.sum()))
        verified = requests + kept
        passes_s = self.verify(verified, kv, requests) + self.host(verified, kv, requests)
        return float(passes_s) + draft_s + float(self.prefill_s(prefill_tokens))

    def node_budget(
        self, multiple: float, kv_tokens: float | None = None, requests: int = 1
    ) -> int:
        """The most verified tokens, roots included, that cost no more than `multiple` steps.

        A step here is the verification of one token of one request. Never more than was measured,
        and 0 when not even the roots of `requests` fit. `kv_tokens` None takes the contexts seen
        while measuring. Raises UserError for a multiple that is not above 0.
        """
        if not multiple > 0:
            raise UserError(
                f"a node budget of {multiple} one-token steps; expected a number above 0"
            )
        kv = self.context_tokens * requests if kv_tokens is None else kv_tokens
        limit_s = multiple * self.verify(1, kv / max(requests, 1), 1)
        tokens = np.arange(requests, max(self.most_tokens, requests) + 1)
        fits = self.verify(tokens, kv, requests) <= limit_s
        return int(tokens[fits].max(initial=0))

    def watts(self, tokens: ArrayLike) -> Floats:
        """Power of a step that verifies so many tokens; constant beyond what was measured."""
        return np.interp(np.asarray(tokens, float), self.power.tokens, self.power.watts)
