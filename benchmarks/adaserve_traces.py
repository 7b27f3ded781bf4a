"""AdaServe's own traces as worlds, by the figures of its paper, and what the paper has there.

The traces are public data beside the checkout (`shared/data/adaserve`) and no part of DraftGym:
where they are not, figures that need them are not measured. Published values are those of the paper
(EuroSys 2026) for Llama-3.1-70B with Llama-3.2-1B.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
from collections.abc import Mapping
from pathlib import Path

from benchmarks.command import ROOT
from benchmarks.figures import UnmeasuredError
from benchmarks.published_world import World
from engine.workload import TraceUse, WorkloadConfig

PEAKS = "fig14/fluc_6m_peak4.0"
SWEEPS = {
    "fig. 8/9": ("fig8_9/rps2.4_ol256", "fig8_9/rps3.0_ol256", "fig8_9/rps3.2_ol256",
                 "fig8_9/rps3.6_ol256", "fig8_9/rps3.8_ol256", "fig8_9/rps4.2_ol256",
                 "fig8_9/rps4.6_ol256"),
    "fig. 10": ("fig10/rps4.0_prop0.3", "fig10/rps4.0_prop0.4", "fig10/rps4.0_prop0.5",
                "fig10/rps4.0_prop0.6", "fig10/rps4.0_prop0.7", "fig10/rps4.0_prop0.8"),
    "fig. 11": ("fig11/slo0.8_ol256", "fig11/slo1.0_ol256", "fig11/slo1.4_ol256",
                "fig11/slo1.6_ol256"),
}  # fmt: skip
"""The paper's points whose traces are there; fig. 8 and 9 are attainment and goodput of the same.
Fig. 11 at 1.2 is fig. 10 at 0.6, and both are fig. 8 at 4.0."""
UNLOADED_S = 0.030
"""The artifact's time per token near zero load, of which coding's objective is a multiple."""
OUTPUT_TOKENS, PROMPT_TOKENS = 256, 2048
HORIZON_S = 900.0
"""Arrivals take six minutes; whoever has not answered all by now never will in time."""
SYSTEMS = {
    "vllm": "vllm",
    "sarathi": "sarathi(chunk_tokens=2048)",
    "vllm-spec(4)": "vllm-spec(4)",
    "vllm-spec(6)": "vllm-spec(6)",
    "vllm-spec(8)": "vllm-spec(8)",
}
"""Its published baselines; Sarathi with the paper's budget of a step."""
DRAFT_TOKENS = 96
"""Of a draft step, in the artifact's script for Llama-70B; its verification has 512."""
AT_512 = f"adaserve(budget_tokens=512, verify_tokens=512, draft_tokens={DRAFT_TOKENS})"
ARTIFACT = f"adaserve-artifact(budget_tokens=512, verify_tokens=512, draft_tokens={DRAFT_TOKENS})"
"""Both with the script's constants, beside AdaServe with those of `adaserve_constants`."""


def data_folder() -> Path:
    """Where the public data lie, if anywhere: $DRAFTGYM_SHARED, else beside the checkout."""
    return Path(os.environ.get("DRAFTGYM_SHARED") or ROOT.parent / "shared" / "data")


def need_data(name: str) -> Path:
    """A folder of the public data. Raises UnmeasuredError where it is not there."""
    folder = data_folder() / name
    if not folder.is_dir():
        raise UnmeasuredError(
            f"data missing: {folder} (put the shared data there or set DRAFTGYM_SHARED)"
        )
    return folder


def world_of(trace: str, length_s: float | None = None) -> World:
    """A trace of theirs with its own objectives, or its first `length_s` seconds."""
    folder = need_data("adaserve")
    return World(
        WorkloadConfig(
            name=trace,
            duration_s=math.inf,
            max_tokens=OUTPUT_TOKENS,
            prompt_tokens=PROMPT_TOKENS,
            trace=TraceUse(f"adaserve:{folder}#{trace}", length_s=length_s),
        ),
        objectives_of(folder, trace),
    )


def objectives_of(folder: Path, trace: str) -> Mapping[str, float]:
    """Seconds per token by class, as the trace has them: absolute, or times the unloaded time."""
    found: dict[str, float] = {}
    with gzip.open(folder / "arrivals.csv.gz", "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["trace"] == trace:
                times = row["tpot_slo_x_baseline"]
                found[row["slo_class"]] = (
                    float(times) * UNLOADED_S if times else float(row["tpot_slo_ms"]) / 1e3
                )
    return found
