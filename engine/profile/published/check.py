"""What the shipped profiles predict against what others measured, figure by figure.

Two things were taken from the runs that are compared: the KV pool of the 4090 and the rate of
all-reduces over PCIe, from decoding alone, in the run of Qwen3-32B. All else was known before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.profile.hardware_profile import HardwareProfile
from engine.profile.published import power_fit, sheets, tables
from engine.profile.published.load import open_profile
from engine.profile.published.queueing import Run, Server, simulate
from engine.protocol import Floats

LLAMA = "meta-llama/Llama-3.{}B-Instruct"


class MeasuredRun(NamedTuple):
    """One of the runs of vLLM 0.19 (shared/data/gpu_llmservingsim/README.md)."""

    profile: str
    gpu: str
    model: str
    most_running: int
    pool_tokens: int | None = None
    """Tokens of the KV pool, where the run's series tells them: what running requests hold over the
    share of the cache in use. The other two series say 0 % throughout."""


RUNS = (
    MeasuredRun("llama-8b-rtx4090", "RTX4090", "Llama-3.1-8B", 256, 42_000),
    MeasuredRun("llama-8b-rtxpro6000", "RTXPRO6000", "Llama-3.1-8B", 128),
    MeasuredRun("qwen3-32b-rtxpro6000", "RTXPRO6000", "Qwen3-32B", 128),
)
BATCH_TOKENS = 2048
CHAT_PROMPT_TOKENS = 100  # ML.ENERGY gives output lengths only
SIZES = (1, 8, 32, 64, 128, 256, 512, 1024)


class Line(NamedTuple):
    """A figure that was measured, and what is predicted for it."""

    what: str
    unit: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.predicted / self.measured - 1


class Errors(NamedTuple):
    """Relative errors over many points."""

    what: str
    errors: Floats

    def __str__(self) -> str:
        off = np.abs(self.errors)
        return (
            f"{self.what}: {len(off)} points, error median {np.median(off):.1%}, "
            f"worst {off.max():.1%}, mean {self.errors.mean():+.1%}"
        )


def queue_runs(folder: Path, runs: Sequence[MeasuredRun] = RUNS) -> Iterator[Line]:
    """The measured runs, each simulated from its arrivals on.

    The 4090's with the pool that it had: vLLM keeps memory for activations and graphs, of which the
    formula knows nothing, and there that is a seventh of the pool.
    """
    for name, gpu, model, most_running, pool_tokens in runs:
        found = tables.rows(folder, tables.REQUESTS, gpu=gpu, model=model)
        found.sort(key=lambda row: float(row["arrival_s"]))
        of = {key: np.array([float(row[key]) for row in found]) for key in _COLUMNS}
        profile = open_profile(name)
        if pool_tokens is not None:
            yield Line(f"{name}: KV pool", "tokens", pool_tokens, profile.kv_pool_tokens())
        pool_tokens = pool_tokens or profile.kv_pool_tokens()
        server = Server(most_running, BATCH_TOKENS, pool_tokens)
        run = simulate(
            profile,
            of["arrival_s"],
            of["prompt_tokens"].astype(np.int64),
            of["output_tokens"].astype(np.int64),
            server,
        )
        yield from _compared(name, of, run)


_COLUMNS = ("prompt_tokens", "output_tokens", "arrival_s", "queue_s", "ttft_s", "tpot_ms")


def _compared(name: str, of: dict[str, Floats], run: Run) -> Iterator[Line]:
    ends = of["arrival_s"] + of["ttft_s"] + 1e-3 * of["tpot_ms"] * (of["output_tokens"] - 1)
    tokens = float(of["output_tokens"].sum())
    yield Line(f"{name}: throughput", "tokens/s", tokens / ends.max(), tokens / run.finished_s)
    tpot_ms = 1e3 * run.tpot_s
    yield Line(f"{name}: TPOT mean", "ms", of["tpot_ms"].mean(), tpot_ms.mean())
    for share in (0.5, 0.95):
        yield Line(
            f"{name}: TPOT p{100 * share:.0f}",
            "ms",
            float(np.quantile(of["tpot_ms"], share)),
            float(np.quantile(tpot_ms, share)),
        )
    yield Line(f"{name}: queue mean", "s", of["queue_s"].mean(), run.queue_s.mean())
    yield Line(f"{name}: TTFT mean", "s", of["ttft_s"].mean(), run.ttft_s.mean())
    yield Line(
        f"{name}: TTFT p95",
        "s",
        float(np.quantile(of["ttft_s"], 0.95)),
        float(np.quantile(run.ttft_s, 0.95)),
    )


def steady_decoding(folder: Path) -> Iterator[Line]:
    """Median time between tokens of ML.ENERGY's H100 servers and Splitwise's A100s, by batch."""
    for name, size in (("llama-8b-h100", "1-8"), ("llama-70b-h100", "3-70")):
        profile = open_profile(name)
        wanted = {"model": LLAMA.format(size), "gpu": "H100", "task": "lm-arena-chat"}
        for row in tables.rows(folder, tables.ML_ENERGY, **wanted):
            batch = float(row["avg_batch_size"])
            if round(batch) not in (8, 32, 64, 128, 255, 511):
                continue
            context = CHAT_PROMPT_TOKENS + float(row["avg_output_tokens"]) / 2
            yield Line(
                f"{name}: batch {batch:.0f}, ML.ENERGY",
                "ms",
                float(row["itl_p50_ms"]),
                1e3 * _step_s(profile, batch, context),
            )
    for name, gpu in (("llama-70b-a100", "a100-80gb"), ("llama-70b-h100", "h100-80gb")):
        profile = open_profile(name)
        wanted = {"model": "llama2-70b", "gpu": gpu, "tensor_parallel": "4"}
        for row in tables.rows(folder, tables.SPLITWISE, **wanted):
            batch, prompt = float(row["batch_size"]), float(row["prompt_tokens"])
            output = float(row["output_tokens"])
            if prompt == 512 and output == 128:
                yield Line(
                    f"{name}: batch {batch:.0f}, Splitwise",
                    "ms",
                    float(row["tpot_ms"]),
                    1e3 * _step_s(profile, batch, prompt + output / 2),
                )


def _step_s(profile: HardwareProfile, batch: float, context: float) -> float:
    kv = batch * context
    return profile.verify.at(batch, kv, batch) + profile.host.at(batch, kv, batch)


def roofline(folder: Path) -> Iterator[Line]:
    """The rule of the H200 profiles on an H100, against H100 kernel times: all but attention."""
    card, shape = sheets.device("h100"), sheets.shape("llama-3.1-8b-instruct")
    layers = tables.eager_products(folder, "H100", "Llama-3.1-8B", shape)
    measured_s = layers.seconds + tables.eager_head(folder, "H100", "Llama-3.1-8B").at(
        layers.tokens
    )
    sizes = np.array(SIZES, float)
    parameters = shape.layers * shape.layer_parameters + shape.head_parameters
    modelled_s = card.pass_s(sizes, parameters)
    for n, measured, modelled in zip(
        SIZES, np.interp(sizes, layers.tokens, measured_s), modelled_s, strict=True
    ):
        yield Line(f"roofline, 8B on H100: {n} tokens", "ms", 1e3 * measured, 1e3 * modelled)


def power(folder: Path) -> Iterator[Errors]:
    """Errors of the form of power on what it was not fitted on."""
    names = ["1-8", "1-70", "3-70"]
    rows = {size: power_fit.h100_rows(folder, [LLAMA.format(size)]) for size in names}
    for size, own in rows.items():
        yield Errors(
            f"power, Llama-3.{size[0]} {size[2:]}B on H100, every second batch held out",
            power_fit.held_out_error(own),
        )
    yield Errors(
        "power, Llama 3.1 70B on H100 by the form of the 8B",
        power_fit.other_model_error(rows["1-70"], rows["1-8"]),
    )
    others = power_fit.h100_rows(folder, ["Qwen/Qwen3-14B", "google/gemma-3-12b-it"])
    yield Errors(
        "power, Llama 3.1 8B on H100 by the form of Qwen3-14B and Gemma-3-12B",
        power_fit.other_model_error(rows["1-8"], others),
    )
    profile, own = open_profile("llama-70b-a100"), power_fit.a100_rows(folder, 4)
    share = profile.watts(own.tokens) / profile.power.limit_watts
    later = own.tokens > 1  # the form starts from the first one
    yield Errors(
        "power, Llama-2 70B on A100 at batch 2 to 16, its scale taken from H100",
        (share / own.share - 1)[later],
    )
