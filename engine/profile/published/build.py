"""Make the shipped profiles from the public tables (specs.py says which; sheets.py: if none).

Where a profile's part is from is written down beside its numbers, as they are put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.profile.cost_model import Curve, PassCost
from engine.profile.hardware_profile import HardwareProfile, MemoryUse, Origin, PowerUse
from engine.profile.identity import Identity
from engine.profile.machine import Machine
from engine.profile.published import power_fit, sheets, tables
from engine.profile.published.curves import through
from engine.profile.published.power_fit import PowerForm
from engine.profile.published.sheets import GRAPH_SIZES, LAUNCH_S, Device, Shape
from engine.profile.published.specs import ADASERVE, SPECS, SPLITWISE, Spec, TablePoints
from engine.profile.published.tables import Attention, Times
from engine.protocol import Floats

DATED = "2026-11-30"
HOST = PassCost(Curve(1e-3), request_s=10e-6)
HOST_RULE = "ours: 1 ms a step and 10 µs a request, since no public table has host time"
HEAD_RULE = "an EAGLE-3 head's bytes or operations by roofline, 0.15 ms to launch (sheets.py)"
CONTEXT_TOKENS = 1024.0  # assumed typical
MOST_TOKENS = 4096
POWER_TOKENS = (1, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
STRAIGHT = 0.01
"""Points that lie closer than this to a line beyond captured sizes go; timings repeat no better."""


@dataclass(frozen=True)
class _Parts:
    """What a profile is made of, before it is one."""

    layers: Times
    """All layers but attention and all-reduces."""
    head: Times
    """LM head by rows of logits."""
    attention: Attention
    kind: str
    source: str


def build_all(folder: Path) -> dict[str, HardwareProfile]:
    """All shipped profiles by name, from the tables under `folder`; UserError where one lacks."""
    forms = power_forms(folder)
    made = {spec.name: build(spec, folder, forms) for spec in SPECS}
    return made | {points.name: build_table(points, forms) for points in ADASERVE}


def power_forms(folder: Path) -> dict[str, PowerForm]:
    """Fitted forms of power: `8b` and `70b` on H100, `a100-70b`."""
    llama = "meta-llama/Llama-3.{}B-Instruct"
    splitwise = power_fit.a100_rows(folder, 4)
    large = power_fit.h100_rows(folder, [llama.format("1-70"), llama.format("3-70")])
    h100_large = power_fit.fit_form(large)
    # Sixteen requests at most do not say where power ends: prefill's peak does, at the limit, and
    # the scale is H100's by the ratio of the knees.
    a100 = _scaled(h100_large, sheets.device("a100-80gb"))
    return {
        "8b": power_fit.fit_form(power_fit.h100_rows(folder, [llama.format("1-8")])),
        "70b": h100_large,
        "a100-70b": PowerForm(float(splitwise.share[0]), 1.0, a100.scale_tokens),
    }


def build(spec: Spec, folder: Path, forms: dict[str, PowerForm]) -> HardwareProfile:
    """A profile of operator timings, or of a roofline alone."""
    card, shape = sheets.device(spec.device), sheets.shape(spec.model)
    parts = _parts(spec, folder, card, shape)
    tokens = parts.layers.tokens
    joined = card.collective_s(tokens, shape, spec.gpus, shape.layers)
    base = parts.layers.seconds + joined + parts.attention.floor_s
    most = float(tokens[-1])
    within = parts.attention.attended_s * tokens**2 / 2  # of a chunk with itself
    attend = parts.attention.attended_s
    logits = np.maximum(
        parts.head.at(tokens), card.pass_s(tokens, shape.head_parameters, spec.gpus)
    )
    power = _scaled(forms[spec.power], card) if spec.power != "a100-70b" else forms[spec.power]
    vidur = "; all-reduce 10 µs and Vidur's bandwidth of large ones"
    many = vidur if spec.gpus > 1 and spec.way != "vllm" else ""
    verify = through(tokens, base + logits, GRAPH_SIZES[-1], STRAIGHT)
    prefill = through(tokens, base + within, GRAPH_SIZES[-1], STRAIGHT)
    return HardwareProfile(
        identity=_identity(spec.model, spec.device, spec.gpus, "eagle3"),
        measured_at=DATED,
        verify=PassCost(verify, parts.attention.kv_token_s, attend),
        draft_first=_draft(card, shape, spec.gpus, shape.draft_parameters[0]),
        draft_next=_draft(card, shape, spec.gpus, shape.draft_parameters[1]),
        prefill=PassCost(prefill, 0.0, attend, float(parts.head.seconds[0])),
        host=HOST,
        most_tokens=int(most),
        context_tokens=CONTEXT_TOKENS,
        fits={},
        power=_power(card, spec.gpus, power),
        memory=_memory(card, shape, spec.gpus, sheets.BYTES * shape.draft_parameters[0]),
        origins={
            "verify": Origin(parts.kind, parts.source + many),
            "prefill": Origin(parts.kind, parts.source + many),
            "draft": Origin("modelled", HEAD_RULE),
            "host": Origin("modelled", HOST_RULE),
            "power": Origin("modelled", spec.power_source),
            "memory": Origin(
                "modelled", "weights and KV by the model's shape, the data sheet's memory"
            ),
        },
    )


def build_table(points: TablePoints, forms: dict[str, PowerForm]) -> HardwareProfile:
    """A profile of a published table of whole passes, linear between its points."""
    card, shape = sheets.device(points.device), sheets.shape(points.model)
    tokens = np.array([1.0, *points.tokens])
    seconds = 1e-3 * np.array([points.unloaded_ms, *points.verify_ms])
    whole = PassCost(through(tokens, seconds))
    draft = PassCost(Curve(1e-3 * points.draft_ms))
    between = "; from 1 token to 128 on a line"
    return HardwareProfile(
        identity=_identity(points.model, points.device, points.gpus, "model"),
        measured_at=DATED,
        verify=whole,
        draft_first=draft,
        draft_next=draft,
        prefill=whole,
        host=PassCost(),
        most_tokens=int(tokens[-1]),
        context_tokens=CONTEXT_TOKENS,
        fits={},
        power=_power(card, points.gpus, forms["a100-70b"]),
        memory=_memory(card, shape, points.gpus, points.draft_bytes),
        origins={
            "verify": Origin("published", points.source + between),
            "draft": Origin("published", f"{points.source}: about {points.draft_ms:g} ms a step"),
            "prefill": Origin("modelled", "a chunk costs what verifying as many tokens does"),
            "host": Origin("modelled", "0: the table is of whole passes, contexts included"),
            "power": Origin("modelled", SPLITWISE),
            "memory": Origin("modelled", points.memory_source),
        },
    )


def _parts(spec: Spec, folder: Path, card: Device, shape: Shape) -> _Parts:
    gpu, name, gpus = spec.table_gpu, spec.table_model, spec.gpus
    if spec.way == "vidur":
        layers = tables.vidur_layers(folder, gpu, name, gpus, shape).until(MOST_TOKENS)
        head = _head(layers.tokens, card, shape, gpus)
        if gpu == "a100":
            attention = tables.a100_attention(folder, gpus, shape)
        else:
            attention = _attention(card, shape, gpus)
        return _Parts(layers, head, attention, "published", spec.source)
    if spec.way == "eager":
        layers = tables.eager_products(folder, gpu, name, shape)
        small = tables.vidur_small(
            folder, "h100", "Llama-2-7b-hf", shape, shape.intermediate / 11008
        )
        layers = Times(layers.tokens, layers.seconds + small.at(layers.tokens)).until(MOST_TOKENS)
        head = tables.eager_head(folder, gpu, name)
        return _Parts(layers, head, _attention(card, shape, gpus), "published", spec.source)
    if spec.way == "vllm":
        layers = tables.vllm_layers(folder, gpu, name, gpus, shape)
        head = tables.vllm_head(folder, gpu, name, gpus)
        attention = tables.vllm_attention(folder, gpu, name, gpus, shape)
        return _Parts(layers, head, attention, "published", spec.source)
    tokens = np.array([*GRAPH_SIZES, 1024, 2048, MOST_TOKENS], float)
    layers = Times(tokens, card.pass_s(tokens, shape.layers * shape.layer_parameters, gpus))
    return _Parts(
        layers,
        _head(tokens, card, shape, gpus),
        _attention(card, shape, gpus),
        "modelled",
        spec.source,
    )


def _head(tokens: Floats, card: Device, shape: Shape, gpus: int) -> Times:
    return Times(tokens, card.pass_s(tokens, shape.head_parameters, gpus))


def _attention(card: Device, shape: Shape, gpus: int) -> Attention:
    """By roofline; the floor is the fastest attention kernel of LLMServingSim's H100 table."""
    return Attention(
        5.2e-6 * shape.layers,
        card.read_s(shape.kv_bytes_per_token, gpus),
        card.attend_s(shape, gpus),
    )


def _draft(card: Device, shape: Shape, gpus: int, parameters: int) -> PassCost:
    tokens = np.array([*GRAPH_SIZES, 1024, 2048, MOST_TOKENS], float)
    seconds = card.pass_s(tokens, parameters, gpus) + LAUNCH_S
    seconds = seconds + card.collective_s(tokens, shape, gpus, 1)
    one = _attention(card, shape, gpus)
    layers = shape.layers
    curve = through(tokens, seconds, GRAPH_SIZES[-1])
    return PassCost(curve, one.kv_token_s / layers, one.attended_s / layers)


def _scaled(form: PowerForm, card: Device) -> PowerForm:
    """H100's form for another GPU: the same shares, filled in proportion to the roofline's knee."""
    h100 = sheets.device("h100")
    knee = (card.bf16_tflops / card.bandwidth_gb_s) / (h100.bf16_tflops / h100.bandwidth_gb_s)
    return form._replace(scale_tokens=form.scale_tokens * knee)


def _power(card: Device, gpus: int, form: PowerForm) -> PowerUse:
    limit = gpus * card.limit_watts
    watts = np.minimum(limit * form.share(np.array(POWER_TOKENS, float)), limit)
    return PowerUse(
        tokens=tuple(map(float, POWER_TOKENS)),
        watts=tuple(np.round(watts, 1).tolist()),
        is_measured=False,
        stages={"draft": round(float(watts[0]), 1), "prefill": limit},
        idle_watts=gpus * card.idle_watts,
        limit_watts=limit,
    )


def _memory(card: Device, shape: Shape, gpus: int, draft_bytes: int) -> MemoryUse:
    return MemoryUse(
        weight_bytes=shape.read_bytes,
        kv_bytes_per_token=shape.kv_bytes_per_token,
        resident_bytes=shape.weight_bytes + draft_bytes,
        device_bytes=gpus * card.memory_gib * 2**30,
    )


def _identity(model: str, device: str, gpus: int, drafter: str) -> Identity:
    title = sheets.device(device).title
    machine = Machine(f"{gpus} × {title}" if gpus > 1 else title, 0, 0, "published figures")
    return Identity(machine, 0, model, "bfloat16", drafter, "published", "cuda", "flashinfer", 16)
