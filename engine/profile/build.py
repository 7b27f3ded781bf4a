"""Make a hardware profile of timed passes: fit each kind, then check what was held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.prefilling import Chunk
from engine.profile.blocks import Blocks
from engine.profile.cost_model import PassCost
from engine.profile.fit import FORMS, CurveData, Fitted, Form, fit
from engine.profile.hardware_profile import FitReport, HardwareProfile, MemoryUse, PowerUse
from engine.profile.identity import Identity
from engine.profile.measure import Step, Timed
from engine.profile.points import (
    Points,
    Sample,
    chunk_points,
    held_out_chunks,
    held_out_steps,
    step_points,
)
from engine.protocol import Bools, Floats

# The engine's own work has no kernels with stairs: a line is all that its few per cent deserve.
HOST_FORMS: tuple[Form, ...] = ("pieces",)
STEP_PARTS = ("draft_s", "verify_s", "host_s")
# Error of the cost model's form, beside which a point's own uncertainty is weighed: without it a
# point whose few repeats agree by chance would count for all others.
MISFIT = 0.02


def build_profile(
    identity: Identity,
    measured_at: str,
    timed: Timed,
    memory: MemoryUse,
    generator: np.random.Generator,
    power: PowerUse | None = None,
    blocks: Blocks | None = None,
) -> HardwareProfile:
    """Fit on three quarters of the points and report the error on the rest.

    The fit that is checked is the one that is stored: nothing is fitted again with what was held
    out. `generator` draws what that is. `power` is the card's; None: what the steps' meter said.
    `blocks` are those of the network's products, if it has such.
    """
    steps, chunks = step_points(timed.steps), chunk_points(timed.chunks)
    steps_out, chunks_out = held_out_steps(steps, generator), held_out_chunks(chunks, generator)
    seen = steps.only(~steps_out)
    verify = _fit_pass(seen, "verify_s", blocks=blocks)
    host = _fit_pass(seen, "host_s", HOST_FORMS)
    draft = _fit_draft(seen.only(seen.feature("first_rows") > 0), blocks)
    prefill = _fit_prefill(chunks.only(~chunks_out), blocks)

    drafted = steps.feature("first_rows") > 0
    verify_s, host_s = verify.cost(*_load(steps)), host.cost(*_load(steps))
    draft_s = _predict_draft(steps, draft)
    prefill_s = prefill.cost(*_chunk_load(chunks))
    reports = {
        "verify": _report(steps, steps_out, verify_s, verify.form, "verify_s"),
        "draft": _report(
            steps.only(drafted), steps_out[drafted], draft_s[drafted], draft.form, "draft_s"
        ),
        "prefill": _report(chunks, chunks_out, prefill_s, prefill.form, "seconds"),
        "step": _report(steps, steps_out, draft_s + verify_s + host_s, "sum", *STEP_PARTS),
    }
    return HardwareProfile(
        identity=identity,
        measured_at=measured_at,
        verify=verify.cost,
        draft_first=draft.first,
        draft_next=draft.further,
        prefill=prefill.cost,
        host=host.cost,
        most_tokens=int(steps.feature("tokens").max()),
        context_tokens=float(np.median(steps.feature("kv_tokens") / steps.feature("requests"))),
        fits=reports,
        power=power or _power(timed.steps),
        memory=memory,
    )


class _Pass(NamedTuple):
    """A kind of pass whose time is known by itself."""

    cost: PassCost
    form: Form


class _Draft(NamedTuple):
    """The drafter's passes, of which only the sum is timed."""

    first: PassCost
    further: PassCost
    form: Form


def _load(points: Points[Step]) -> tuple[Floats, Floats, Floats]:
    """Tokens, KV tokens and requests [P] of the verifications."""
    return points.feature("tokens"), points.feature("kv_tokens"), points.feature("requests")


def _chunk_load(points: Points[Chunk]) -> tuple[Floats, Floats, Floats]:
    """Tokens, tokens before them and prompts that end [P], as `PassCost` takes them."""
    names = ("tokens", "context_tokens", "ends_prompt")
    tokens, before, ends = (points.feature(name) for name in names)
    return tokens, before, ends


def _pass_terms(tokens: Floats, kv: Floats, requests: Floats) -> list[Floats]:
    """Columns of `PassCost`'s linear terms."""
    return [kv, tokens * kv / np.maximum(requests, 1.0), requests]


def _curve_data(counts: Floats) -> CurveData:
    return CurveData(counts, np.ones_like(counts))


def _weights(points: Points[Sample], *parts: str) -> Floats:
    """[P] how much each point counts in a fit: less where its repeats lie apart."""
    return 1.0 / (MISFIT**2 + points.standard_error(*parts) ** 2)


def _cost(fitted: Fitted) -> PassCost:
    return PassCost(fitted.curves[0], *fitted.linear)


def _fit_pass(
    points: Points[Step],
    part: str,
    forms: Sequence[Form] = FORMS,
    blocks: Blocks | None = None,
) -> _Pass:
    load = _load(points)
    fitted = fit(
        [_curve_data(load[0])],
        _pass_terms(*load),
        points.seconds(part),
        forms,
        _weights(points, part),
        blocks,
    )
    return _Pass(_cost(fitted), fitted.form)


def _fit_prefill(points: Points[Chunk], blocks: Blocks | None) -> _Pass:
    load = _chunk_load(points)
    fitted = fit(
        [_curve_data(load[0])],
        _pass_terms(*load),
        points.seconds("seconds"),
        weights=_weights(points, "seconds"),
        blocks=blocks,
    )
    return _Pass(_cost(fitted), fitted.form)


def _fit_draft(points: Points[Step], blocks: Blocks | None) -> _Draft:
    """First and further steps together: only their sum is timed, but their numbers differ."""
    _, kv, requests = _load(points)
    first, beam, further = _draft_rows(points)
    # One rate of reading the cache, and one of attending to it: the layer is the same in all.
    linear = [
        (1 + further) * kv,
        (first + further * beam) * kv / requests,
        requests,
    ]
    curves = [_curve_data(first), CurveData(beam, further)]
    seconds, weights = points.seconds("draft_s"), _weights(points, "draft_s")
    fitted = fit(curves, linear, seconds, weights=weights, blocks=blocks)
    kv_token_s, attended_s, request_s = fitted.linear
    return _Draft(
        PassCost(fitted.curves[0], kv_token_s, attended_s, request_s),
        PassCost(fitted.curves[1], kv_token_s, attended_s),
        fitted.form,
    )


def _draft_rows(points: Points[Step]) -> tuple[Floats, Floats, Floats]:
    """Rows of the first step, rows of each further one, how many further ones [P]."""
    further = np.array([max(repeats[0].shape.depth - 1, 0) for repeats in points.repeats], float)
    return points.feature("first_rows"), points.feature("beam_rows"), further


def _predict_draft(points: Points[Step], draft: _Draft) -> Floats:
    _, kv, requests = _load(points)
    first, beam, further = _draft_rows(points)
    seconds = draft.first(first, kv, requests) + further * draft.further(beam, kv, requests)
    return np.where(first > 0, seconds, 0.0)


def _report(
    points: Points[Sample], out: Bools, predicted_s: Floats, form: str, *parts: str
) -> FitReport:
    """Errors at the medians of held-out points, beside the noise of single repeats."""
    measured_s = points.seconds(*parts)
    error = np.abs(predicted_s[out] / measured_s[out] - 1)
    noise = points.noise(*parts)
    return FitReport(
        form=form,
        points=len(points.repeats),
        held_out=int(out.sum()),
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
