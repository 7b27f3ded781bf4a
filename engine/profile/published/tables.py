"""Reading the public tables of operator times and power under shared/data, each with its traps.

All of them are gzipped CSV; their READMEs say where they are from. Times come back in seconds for
the whole model on its GPUs. Only rebuilding and checking needs the tables; shipped profiles do not.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.errors import UserError
from engine.profile.published.sheets import BYTES, HEAD_DIM, Shape
from engine.protocol import Floats

MLP = "gpu_vidur/mlp.csv.gz"
DENSE = "gpu_llmservingsim/dense.csv.gz"
EAGER = "gpu_llmservingsim/layers_eager.csv.gz"
PER_SEQUENCE = "gpu_llmservingsim/per_sequence.csv.gz"
ATTENTION = "gpu_llmservingsim/attention.csv.gz"
ATTENTION_A100 = "gpu_vidur/attention_a100.csv.gz"
REQUESTS = "gpu_llmservingsim/vllm_requests.csv.gz"
ML_ENERGY = "power_mlenergy/llm_power.csv.gz"
SPLITWISE = "power_splitwise/perf_power.csv.gz"
PRODUCTS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# Below this, a GPU's last-level cache may answer for its memory.
CACHE_BYTES = 2**28
LONG_CHUNK = 512

Row = dict[str, str]


class Times(NamedTuple):
    """Seconds [P] of passes over tokens [P], ascending."""

    tokens: Floats
    seconds: Floats

    def at(self, tokens: Floats) -> Floats:
        """Seconds at other counts, linear between points."""
        return np.interp(tokens, self.tokens, self.seconds)

    def until(self, most: float) -> Times:
        """The points of no more than so many tokens."""
        kept = self.tokens <= most
        return Times(self.tokens[kept], self.seconds[kept])


class Attention(NamedTuple):
    """Attention of all layers: a floor, and seconds for tokens read and for pairs attended to."""

    floor_s: float
    kv_token_s: float
    attended_s: float


def rows(folder: Path, name: str, **wanted: str) -> list[Row]:
    """Rows of a table with the wanted values; raises UserError when it is not there or has none."""
    path = folder / name
    if not path.is_file():
        raise UserError(f"{path}: no such table; name the folder of shared/data with --data")
    with gzip.open(path, "rt", newline="") as text:
        lines = csv.reader(text)
        names = next(lines)
        tests = [(names.index(name), value) for name, value in wanted.items()]
        found = [
            dict(zip(names, line, strict=True))
            for line in lines
            if all(line[i] == value for i, value in tests)
        ]
    if not found:
        raise UserError(f"{path} has no rows with {wanted}")
    return found


def vidur_layers(folder: Path, gpu: str, model: str, gpus: int, shape: Shape) -> Times:
    """Every operator of all layers but attention. `add` runs twice a layer, `emb` once a model."""
    times = {}
    for row in rows(folder, MLP, gpu=gpu, model=model, tensor_parallel=str(gpus)):
        layer_ms = sum(
            float(value) * (2 if name == "add_ms" else 1)
            for name, value in row.items()
            if name.endswith("_ms") and name != "emb_ms"
        )
        times[int(row["num_tokens"])] = shape.layers * layer_ms + float(row["emb_ms"])
    return _times(times, 1e-3)


def vllm_layers(folder: Path, gpu: str, model: str, gpus: int, shape: Shape) -> Times:
    """Every kernel of all layers but attention. `layernorm` runs twice a layer."""
    once = ("embedding", "final_layernorm")
    wanted = {"gpu": gpu, "model": model, "tensor_parallel": str(gpus)}
    times: dict[int, float] = {}
    counts: dict[int, int] = {}
    found = rows(folder, DENSE, **wanted)
    for row in found:
        name, tokens = row["layer"], int(row["tokens"])
        repeats = 1 if name in once else shape.layers * (2 if name == "layernorm" else 1)
        times[tokens] = times.get(tokens, 0.0) + repeats * float(row["time_us"])
        counts[tokens] = counts.get(tokens, 0) + 1
    layers = max(counts.values())  # a size that some layer lacks would look cheap
    return _times({n: t for n, t in times.items() if counts[n] == layers}, 1e-6)


def eager_products(folder: Path, gpu: str, model: str, shape: Shape) -> Times:
    """The matrix products of all layers. Eager norms and activations are slow: left out."""
    times: dict[int, float] = {}
    wanted = {"gpu": gpu, "model": model, "tensor_parallel": "1"}
    for row in rows(folder, EAGER, **wanted):
        if row["layer"] in PRODUCTS:
            tokens = int(row["tokens"])
            times[tokens] = times.get(tokens, 0.0) + shape.layers * float(row["time_us"])
    return _times(times, 1e-6)


def vidur_small(folder: Path, gpu: str, model: str, shape: Shape, wider: float) -> Times:
    """Norms, rotation, activation and sums of all layers; the activation `wider` times as wide."""
    times = {}
    for row in rows(folder, MLP, gpu=gpu, model=model, tensor_parallel="1"):
        names = ("input_layernorm", "attn_rope", "post_attention_layernorm")
        layer_ms = sum(float(row[f"{name}_ms"]) for name in names)
        layer_ms += wider * float(row["mlp_act_ms"]) + 2 * float(row["add_ms"])
        times[int(row["num_tokens"])] = shape.layers * layer_ms + float(row["emb_ms"])
    return _times(times, 1e-3)


def vllm_head(folder: Path, gpu: str, model: str, gpus: int) -> Times:
    """LM head and sampler by rows of logits."""
    wanted = {"gpu": gpu, "model": model, "tensor_parallel": str(gpus)}
    times: dict[int, float] = {}
    for row in rows(folder, PER_SEQUENCE, **wanted):
        count = int(row["sequences"])
        times[count] = times.get(count, 0.0) + float(row["time_us"])
    return _times(times, 1e-6)


def eager_head(folder: Path, gpu: str, model: str) -> Times:
    """LM head by rows of logits."""
    found = rows(folder, EAGER, gpu=gpu, model=model, tensor_parallel="1", layer="lm_head")
    return _times({int(row["tokens"]): float(row["time_us"]) for row in found}, 1e-6)


def a100_attention(folder: Path, gpus: int, shape: Shape) -> Attention:
    """Scaled from the table's 32 query and 4 KV heads a GPU by heads and bytes."""
    decode = [
        (int(r["batch_size"]) * int(r["kv_tokens"]), float(r["attn_ms"]))
        for r in rows(folder, ATTENTION_A100, phase="decode")
    ]
    prefill = [  # `kv_tokens` stand before the chunk
        (int(r["prefill_chunk"]), int(r["kv_tokens"]), float(r["attn_ms"]))
        for r in rows(folder, ATTENTION_A100, phase="prefill")
    ]
    one = _attention(decode, prefill, 4, 1e-3)
    read, heads = shape.kv_heads / gpus / 4, shape.heads / gpus / 32
    layers = shape.layers
    return Attention(
        layers * one.floor_s, layers * read * one.kv_token_s, layers * heads * one.attended_s
    )


def vllm_attention(folder: Path, gpu: str, model: str, gpus: int, shape: Shape) -> Attention:
    """Of the very model."""
    found = rows(folder, ATTENTION, gpu=gpu, model=model, tensor_parallel=str(gpus))
    decode = [
        (int(r["n_decode"]) * int(r["kv_decode"]), float(r["time_us"]))
        for r in found
        if r["prefill_chunk"] == "0"
    ]
    prefill = [
        (int(r["prefill_chunk"]), int(r["kv_prefill"]), float(r["time_us"]))
        for r in found
        if r["n_decode"] == "0"
    ]
    one = _attention(decode, prefill, shape.kv_heads / gpus, 1e-6)
    return Attention(*(shape.layers * value for value in one))


def _attention(
    decode: list[tuple[int, float]],
    prefill: list[tuple[int, int, float]],
    kv_heads: float,
    unit: float,
) -> Attention:
    """One layer's: the floor of the smallest batches, the rates of those that no cache holds."""
    read = np.array(decode, float)
    smallest = read[read[:, 0] <= 256][:, 1]
    floor = float(np.median(smallest))
    large = read[read[:, 0] * 2 * kv_heads * HEAD_DIM * BYTES >= CACHE_BYTES]
    rate = float(np.median((large[:, 1] - floor) / large[:, 0]))
    chunk, before, time = np.array(prefill, float).T
    long = chunk >= LONG_CHUNK
    pairs = chunk * (before + chunk / 2)  # a token attends to those before it in the chunk too
    attended = float(np.median((time[long] - floor) / pairs[long]))
    return Attention(unit * floor, unit * rate, unit * attended)


def _times(times: dict[int, float], unit: float) -> Times:
    tokens = sorted(times)
    return Times(np.array(tokens, float), unit * np.array([times[n] for n in tokens]))
