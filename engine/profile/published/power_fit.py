"""Published power by batch, as a curve of three constants, and how well it holds on unseen rows.

ML.ENERGY's rows state no licence, so the constants ship and the rows do not. A GPU draws `low` for
the first token, since it streams all weights whatever the batch, and nears `high` as the arithmetic
units fill: watts(n) = high - (high - low) · exp(-n / scale). All are shares of its power limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.profile.published import tables
from engine.protocol import Floats

H100_LIMIT_WATTS = 700.0
SCALES = np.geomspace(8.0, 1024.0, 200)


class PowerRows(NamedTuple):
    """Shares [P] of the limit that passes over tokens [P] draw."""

    tokens: Floats
    share: Floats


class PowerForm(NamedTuple):
    """Shares of a GPU's limit, and the tokens over which it goes from one towards the other."""

    low: float
    high: float
    scale_tokens: float

    def share(self, tokens: Floats) -> Floats:
        """Of the limit, at each count."""
        filled = 1.0 - np.exp(-np.asarray(tokens, float) / self.scale_tokens)
        return self.low + (self.high - self.low) * filled


def fit_form(rows: PowerRows) -> PowerForm:
    """The form with the least relative squares."""

    def solved(scale: float) -> tuple[float, PowerForm]:
        decay = np.exp(-rows.tokens / scale)
        matrix = np.stack([decay, 1.0 - decay], axis=1) / rows.share[:, None]
        (low, high), *_ = np.linalg.lstsq(matrix, np.ones(len(decay)), rcond=None)
        high = max(float(high), float(low))
        form = PowerForm(float(low), high, float(scale))
        return float(((form.share(rows.tokens) / rows.share - 1) ** 2).sum()), form

    return min((solved(scale) for scale in SCALES.tolist()), key=lambda pair: pair[0])[1]


def h100_rows(folder: Path, models: Sequence[str]) -> PowerRows:
    """ML.ENERGY's chat rows of these models on H100; B200's are host-bound and not monotone."""
    found = [
        row
        for model in models
        for row in tables.rows(
            folder, tables.ML_ENERGY, model=model, gpu="H100", task="lm-arena-chat"
        )
    ]
    tokens = [float(row["avg_batch_size"]) for row in found]
    watts = [float(row["avg_power_w"]) / float(row["num_gpus"]) for row in found]
    order = np.argsort(tokens, kind="stable")
    return PowerRows(np.array(tokens)[order], np.array(watts)[order] / H100_LIMIT_WATTS)


def a100_rows(folder: Path, gpus: int) -> PowerRows:
    """Splitwise's averages of Llama-2-70B, which are nearly decode's.

    Prompts of 512 tokens only: with longer ones prefill weighs more, and the rows of 8,192 tokens
    show less than twice idle power, which no decoding does.
    """
    wanted = {"model": "llama2-70b", "gpu": "a100-80gb", "prompt_tokens": "512"}
    found = [
        row
        for row in tables.rows(folder, tables.SPLITWISE, tensor_parallel=str(gpus), **wanted)
        if row["average_power_frac_tdp"]
    ]
    tokens = np.array([float(row["batch_size"]) for row in found])
    share = np.array([float(row["average_power_frac_tdp"]) for row in found])
    order = np.argsort(tokens, kind="stable")
    return PowerRows(tokens[order], share[order])


def held_out_error(rows: PowerRows) -> Floats:
    """Relative errors at every second point, of a form fitted on the others."""
    out = np.arange(len(rows.tokens)) % 2 == 1
    form = fit_form(PowerRows(rows.tokens[~out], rows.share[~out]))
    return form.share(rows.tokens[out]) / rows.share[out] - 1


def other_model_error(rows: PowerRows, others: PowerRows) -> Floats:
    """Relative errors at all points, of a form fitted on other models only."""
    return fit_form(others).share(rows.tokens) / rows.share - 1
