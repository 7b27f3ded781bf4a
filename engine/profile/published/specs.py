"""Which profiles ship, and of what each is made."""

from __future__ import annotations

from dataclasses import dataclass

VIDUR = "Vidur operator times (microsoft/vidur 7d47513, MIT)"
LSS = "LLMServingSim kernel times (casys-kaist/LLMServingSim 5daddb2, MIT)"
ARTIFACT = "AdaServe artifact (zikun-li/AdaServe-Artifact-Evaluation dbae1c3, Apache-2.0)"
ROOFLINE = "roofline: 80 % of bandwidth, 65 % of bf16 rate, padded to vLLM's captured sizes"
HEAD = "LM head by roofline"
ML_ENERGY = "form of 3 constants fitted to ML.ENERGY on H100 (Chung et al. 2025)"
SPLITWISE = (
    "Splitwise (MIT): 0.60 of the limit at batch 1, all of it in prefill; between, H100's form"
)


@dataclass(frozen=True)
class Spec:
    """A profile of operator timings, or by roofline."""

    name: str
    model: str
    device: str
    gpus: int
    way: str
    """vidur, eager, vllm or roofline: which table, read how (build.py)."""
    table_gpu: str
    table_model: str
    source: str
    power: str
    """Which fitted form of power."""
    power_source: str


@dataclass(frozen=True)
class TablePoints:
    """A published table of verification times."""

    name: str
    model: str
    device: str
    gpus: int
    unloaded_ms: float
    verify_ms: tuple[float, ...]
    draft_ms: float
    draft_bytes: int
    memory_source: str
    source: str = ARTIFACT
    tokens: tuple[int, ...] = (128, 256, 384, 512, 640, 768, 896, 1024)


# ALGORITHMS.md §11. The draft models are of 1B and 0.5B parameters.
ADASERVE = (
    TablePoints(
        "adaserve-llama-70b-a100",
        "llama-3.1-70b-instruct",
        "a100-40gb",
        8,
        30.0,
        (55, 85, 105, 125, 145, 165, 185, 205),
        5.0,
        2_000_000_000,
        "8 × A100-40GB, as the artifact's profile (the paper's results: 4 × A100-80GB)",
    ),
    TablePoints(
        "adaserve-qwen-32b-a100",
        "qwen2.5-32b-instruct",
        "a100-80gb",
        2,
        28.0,
        (48, 66, 84, 104, 124, 144, 164, 188),
        4.0,
        1_000_000_000,
        "2 × A100-80GB, as in the paper; the artifact does not say what its profile is of",
    ),
)

_8B, _70B = "llama-3.1-8b-instruct", "llama-3.1-70b-instruct"
_H100_HEAD = "norms and activations by Vidur's Llama-2-7B; attention by roofline"

SPECS = (
    Spec(
        *("llama-8b-a100", _8B, "a100-80gb", 1, "vidur", "a100", "Meta-Llama-3-8B"),
        f"{VIDUR}, A100 attention e2d00e9; {HEAD}",
        *("8b", f"{ML_ENERGY}, by the ratio of the knees"),
    ),
    Spec(
        *("llama-70b-a100", _70B, "a100-80gb", 4, "vidur", "a100", "Meta-Llama-3-70B"),
        f"{VIDUR}, A100 attention e2d00e9; {HEAD}",
        *("a100-70b", SPLITWISE),
    ),
    Spec(
        *("llama-8b-h100", _8B, "h100", 1, "eager", "H100", "Llama-3.1-8B"),
        f"{LSS}: matrix products and LM head, unfused; {_H100_HEAD}",
        *("8b", ML_ENERGY),
    ),
    Spec(
        *("llama-70b-h100", _70B, "h100", 4, "vidur", "h100", "Llama-2-70b-hf"),
        f"{VIDUR} of Llama-2-70B, whose layers are the same; {HEAD}, attention by roofline",
        *("70b", ML_ENERGY),
    ),
    Spec(
        *("llama-8b-h200", _8B, "h200", 1, "roofline", "", ""),
        ROOFLINE,
        *("8b", f"{ML_ENERGY}, by the ratio of the knees"),
    ),
    Spec(
        *("llama-70b-h200", _70B, "h200", 4, "roofline", "", ""),
        ROOFLINE,
        *("70b", f"{ML_ENERGY}, by the ratio of the knees"),
    ),
    Spec(
        *("llama-8b-rtx4090", _8B, "rtx4090", 1, "vllm", "RTX4090", "Llama-3.1-8B"),
        LSS,
        *("8b", f"{ML_ENERGY}, by the ratio of the knees: no power was published"),
    ),
    Spec(
        *("llama-8b-rtxpro6000", _8B, "rtxpro6000", 1, "vllm", "RTXPRO6000", "Llama-3.1-8B"),
        LSS,
        *("8b", f"{ML_ENERGY}, by the ratio of the knees: no power was published"),
    ),
    Spec(
        *("qwen3-32b-rtxpro6000", "qwen3-32b", "rtxpro6000", 2, "vllm", "RTXPRO6000", "Qwen3-32B"),
        f"{LSS}; all-reduce over PCIe fitted to decoding in its own run",
        *("8b", f"{ML_ENERGY}, by the ratio of the knees: no power was published"),
    ),
)
