"""Make a hardware profile of timed steps: fit each kind of pass, then check what was held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.profile.cost_model import PassCost
from engine.profile.fit import CurveData, Fitted, Form, fit
from engine.profile.hardware_profile import FitReport, HardwareProfile, MemoryUse, PowerUse
from engine.profile.machine import Machine
from engine.profile.measure import Step
from engine.profile.points import Points, held_out, points_of
from engine.protocol import Bools, Floats

# The engine's own work has no kernels with stairs: a line is all that its few per cent deserve.
HOST_FORMS: tuple[Form, ...] = ("pieces",)


class Identity(NamedTuple):
    """Whose profile it is."""

    machine: Machine
    model: str
    dtype: str
    drafter: str
    threads: int
    measured_at: str


def build_profile(
    identity: Identity,
    steps: Sequence[Step],
    memory: MemoryUse,
    generator: np.random.Generator,
) -> HardwareProfile:
    """Fit on three quarters of the points and report the error on the rest.

    The fit that is checked is the one that is stored: nothing is fitted again with what was held
    out. `generator` draws what that is.
    """
    points = points_of(steps)
    out = held_out(points, generator)
    fits = [_fit_verify(points, ~out), _fit_draft(points, ~out), _fit_prefill(points, ~out)]
    (verify, *_), (draft_first, draft_next, *_), (prefill, *_) = (f.costs for f in fits)
    host = _fit_host(points, ~out)
    predicted = {
        "verify_s": verify(*_load(points)),
        "draft_s": _predict_draft(points, draft_first, draft_next),
        "prefill_s": prefill(points.feature("prompt_tokens")),
        "host_s": host(*_load(points)),
    }
    reports = {
        fitted.name: _report(points, out, (f"{fitted.name}_s",), predicted, fitted.form)
        for fitted in fits
    }
    reports["step"] = _report(points, out, ("draft_s", "verify_s", "host_s"), predicted, "sum")
    return HardwareProfile(
        **identity._asdict(),
        verify=verify,
        draft_first=draft_first,
        draft_next=draft_next,
        prefill=prefill,
        host=host,
        most_tokens=int(points.feature("tokens").max()),
        context_tokens=float(np.median(points.feature("kv_tokens") / points.feature("requests"))),
        fits=reports,
        power=_power(steps),
        memory=memory,
    )


class _Fit(NamedTuple):
    name: str
    costs: tuple[PassCost, ...]
    form: Form


def _load(points: Points) -> tuple[Floats, Floats, Floats]:
    """Tokens, KV tokens and requests [P] of the verifications."""
    return points.feature("tokens"), points.feature("kv_tokens"), points.feature("requests")


def _pass_terms(tokens: Floats, kv: Floats, requests: Floats) -> list[Floats]:
    """Columns of `PassCost`'s linear terms."""
    return [kv, tokens * kv / requests, requests]


def _cost(fitted: Fitted) -> PassCost:
    return PassCost(fitted.curves[0], *fitted.linear)


def _fit_verify(points: Points, seen: Bools) -> _Fit:
    tokens, kv, requests = (a[seen] for a in _load(points))
    curve = CurveData(tokens, np.ones_like(tokens))
    fitted = fit([curve], _pass_terms(tokens, kv, requests), points.verify_s[seen])
    return _Fit("verify", (_cost(fitted),), fitted.form)


def _fit_host(points: Points, seen: Bools) -> PassCost:
    tokens, kv, requests = (a[seen] for a in _load(points))
    curve = CurveData(tokens, np.ones_like(tokens))
    return _cost(fit([curve], _pass_terms(tokens, kv, requests), points.host_s[seen], HOST_FORMS))


def _fit_prefill(points: Points, seen: Bools) -> _Fit:
    seen = seen & (points.feature("prompt_tokens") > 0)
    tokens = points.feature("prompt_tokens")[seen]
    fitted = fit([CurveData(tokens, np.ones_like(tokens))], [], points.prefill_s[seen])
    return _Fit("prefill", (PassCost(fitted.curves[0]),), fitted.form)


def _fit_draft(points: Points, seen: Bools) -> _Fit:
    """First and further steps together: only their sum is timed, but their numbers differ."""
    seen = seen & (points.feature("first_rows") > 0)
    _, kv, requests = (a[seen] for a in _load(points))
    first, beam, further = (a[seen] for a in _draft_rows(points))
    curves = [CurveData(first, np.ones_like(first)), CurveData(beam, further)]
    # One rate of reading the cache for all draft steps: the layer is the same.
    linear = [(1 + further) * kv, requests]
    fitted = fit(curves, linear, points.draft_s[seen])
    kv_token_s, request_s = fitted.linear
    costs = (
        PassCost(fitted.curves[0], kv_token_s, request_s=request_s),
        PassCost(fitted.curves[1], kv_token_s),
    )
    return _Fit("draft", costs, fitted.form)


def _draft_rows(points: Points) -> tuple[Floats, Floats, Floats]:
    """Rows of the first step, rows of each further one, how many further ones [P]."""
    further = np.array([max(step.shape.depth - 1, 0) for step in points.steps], float)
    return points.feature("first_rows"), points.feature("beam_rows"), further


def _predict_draft(points: Points, first_cost: PassCost, next_cost: PassCost) -> Floats:
    _, kv, requests = _load(points)
    first, beam, further = _draft_rows(points)
    seconds = first_cost(first, kv, requests) + further * next_cost(beam, kv, requests)
    return np.where(first > 0, seconds, 0.0)


def _report(
    points: Points,
    out: Bools,
    parts: tuple[str, ...],
    predicted: dict[str, Floats],
    form: str,
) -> FitReport:
    """Errors at the medians of held-out points, beside the noise of single repeats."""
    measured = np.sum([getattr(points, part) for part in parts], axis=0)
    expected = np.sum([predicted[part] for part in parts], axis=0)
    relevant = np.ones(len(measured), bool)
    if parts == ("draft_s",):
        relevant = points.feature("first_rows") > 0
    elif parts == ("prefill_s",):
        relevant = points.feature("prompt_tokens") > 0
    checked = out & relevant
    error = np.abs(expected[checked] / measured[checked] - 1)
    noise = points.noise(parts, relevant)
    return FitReport(
        form=form,
        points=int(relevant.sum()),
        held_out=int(checked.sum()),
        error_median=_quantile(error, 0.5),
        error_p95=_quantile(error, 0.95),
        noise_median=_quantile(noise, 0.5),
        noise_p95=_quantile(noise, 0.95),
    )


def _quantile(values: Floats, share: float) -> float:
    """A quantile; 0 of nothing, which `FitReport.held_out` tells."""
    return float(np.quantile(values, share)) if len(values) else 0.0


def _power(steps: Sequence[Step]) -> PowerUse:
    """Median watts of the steps by their tokens; measured only if all were."""
    tokens = sorted({step.tokens for step in steps})
    watts = [float(np.median([s.watts for s in steps if s.tokens == n])) for n in tokens]
    measured = all(step.watts_are_measured for step in steps)
    return PowerUse(tuple(map(float, tokens)), tuple(watts), measured)
